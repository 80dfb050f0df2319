"""Kubeflow Pipelines: compile, check by the backend's rules (``linter/rules``), and emulate."""
