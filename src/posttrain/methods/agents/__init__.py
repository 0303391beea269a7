"""Multi-turn agents."""
