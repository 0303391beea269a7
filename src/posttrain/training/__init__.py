"""Optimisation: from credit to new weights."""
