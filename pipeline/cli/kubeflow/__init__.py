"""``stagecraft kubeflow``: Kubeflow Pipelines from the command line."""
