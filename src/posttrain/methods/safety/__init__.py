"""Private training."""
