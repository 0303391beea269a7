"""Held-out evaluation: greedy answers, pass@k, and answers by search."""
