"""What a run leaves behind, and the views of it."""
