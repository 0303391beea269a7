"""Complete recipes of a world: tasks, model, warm-up, verifier and sizes."""
