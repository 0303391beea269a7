"""Parts of rewards: reading answers, comparing them, and running code that must be killable."""
