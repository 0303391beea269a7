"""Preference optimization."""
