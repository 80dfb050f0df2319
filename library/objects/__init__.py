"""Objects of the caller's as the engines need them: model, optimizer, loss and metrics, data."""
