"""Intervals and tests for what a run measured."""
