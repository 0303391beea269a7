"""Reward models, verifiers and judges."""
