"""Turning credit into new weights."""
