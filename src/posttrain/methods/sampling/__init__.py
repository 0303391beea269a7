"""Sampling of rollouts, and selection among them."""
