"""Readers of the CIFAR archives, and the download."""
