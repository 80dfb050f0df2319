"""Weights that a training begins with, in place of random ones: ``train.initial_weights``."""
