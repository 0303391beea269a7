"""What tasks share: reading rows of data, drawing tasks, pictures and templates."""
