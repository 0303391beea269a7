"""Recipes: the tree of settings, overrides, files, differences, and the catalogue."""
