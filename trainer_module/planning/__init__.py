"""Where a model is cut, what each part costs, and in which order its parts work."""
