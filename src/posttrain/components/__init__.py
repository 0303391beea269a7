"""The families of components: one folder per family, one file per component."""
