"""Checks that a batch can be divided without changing what a model computes."""
