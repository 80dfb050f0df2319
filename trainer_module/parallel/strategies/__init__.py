"""Strategies, one file each: values of ``parallel.strategy``."""
