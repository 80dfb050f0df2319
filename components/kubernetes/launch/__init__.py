"""Starts a training as a job of the cluster, and follows it."""
