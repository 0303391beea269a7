"""Optimization: from advantages to updated weights."""
