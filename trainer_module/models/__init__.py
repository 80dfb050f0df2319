"""Models: families, those of the user and of KerasHub, initial weights, costs of their parts."""
