"""Kubeflow Pipelines over its API: the only folder that knows the kfp client."""
