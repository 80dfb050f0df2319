"""ExampleGens of other data than the CIFAR archives."""
