"""Kubeflow Pipelines: compile, check and emulate."""
