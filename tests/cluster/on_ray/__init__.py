"""Tests that have one Ray in common, which takes seconds to start."""
