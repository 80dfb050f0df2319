"""Cuts of a model, predicted costs of its stages, and pipeline schedules."""
