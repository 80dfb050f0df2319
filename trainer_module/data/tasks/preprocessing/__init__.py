"""Functions for Transform, of tasks that have their own; they import nothing of the trainer."""
