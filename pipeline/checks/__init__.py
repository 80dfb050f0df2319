"""Checks of settings, data, models and the machine, before a pipeline runs."""
