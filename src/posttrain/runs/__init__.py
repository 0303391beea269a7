"""Runs: launching, recording, resuming, reporting."""
