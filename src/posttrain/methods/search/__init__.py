"""Search at test time, and training on its results."""
