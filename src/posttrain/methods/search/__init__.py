"""Search, and learning from it."""
