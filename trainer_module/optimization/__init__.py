"""Losses, optimizers, learning-rate schedules, and what happens to gradients and weights."""
