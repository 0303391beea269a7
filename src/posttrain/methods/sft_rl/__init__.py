"""Supervised fine-tuning, and its combinations with RL."""
