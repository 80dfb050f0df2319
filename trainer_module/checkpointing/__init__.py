"""Checkpoints of a training: ``checkpoints`` commits them, ``mirror`` those in an object store."""
