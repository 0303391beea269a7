"""Curricula: which tasks are trained on, and when."""
