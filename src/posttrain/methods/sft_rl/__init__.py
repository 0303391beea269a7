"""Imitation, and imitation joined with reinforcement."""
