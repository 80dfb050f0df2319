"""What a training learns: features, targets, loss and metrics."""
