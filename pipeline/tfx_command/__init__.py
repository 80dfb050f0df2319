"""What TFX's own command line lacks: an engine for open-source Kubeflow Pipelines 2.x."""
