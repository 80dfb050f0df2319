"""Checks of a cluster before a training starts there."""
