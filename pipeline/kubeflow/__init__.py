"""Kubeflow Pipelines: compile, check and emulate."""

from stagecraft.schemas import moved

moved.install()
