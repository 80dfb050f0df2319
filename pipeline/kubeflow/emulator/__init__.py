"""Runs a compiled pipeline on this machine: ports of Kubeflow Pipelines 2.17 and of Argo."""
