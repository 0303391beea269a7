"""Complete recipes: tasks, model, warm-up, verifier and sizes."""
