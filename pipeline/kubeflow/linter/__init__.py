"""Would the open-source Kubeflow Pipelines backend take this file, and run it?

The rules are ports of the backend's own, read in its Go code (kubeflow/pipelines at 7b70c7b95,
August 2026); every finding names the file and the function. No live cluster was asked.
"""

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.lint import check

__all__ = ["Finding", "check"]
