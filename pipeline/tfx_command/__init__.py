"""The ``tfx`` command's engine for open-source Kubeflow Pipelines 2.x, which TFX lacks."""
