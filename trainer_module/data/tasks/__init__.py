"""Tasks, which say what a training learns: features, targets, loss and metrics."""
