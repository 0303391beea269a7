"""Policy-gradient objectives, advantages and clipping."""
