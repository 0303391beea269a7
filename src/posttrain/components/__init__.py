"""The families of components: one folder a family, one file a component."""
