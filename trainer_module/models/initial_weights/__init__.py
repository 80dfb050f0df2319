"""Loads the weights of ``train.initial_weights`` in place of random ones."""
