"""Confidence intervals and tests."""
