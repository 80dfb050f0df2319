"""Compiles the pipeline for Kubeflow Pipelines or Vertex AI, for the ``tfx`` command and by hand.

::

    stagecraft tfx pipeline create --engine=kubeflow --pipeline-path "$PWD/kubeflow_v2_runner.py" \\
        --endpoint https://kubeflow.example.com/pipeline
    tfx pipeline create --engine=vertex --pipeline-path "$PWD/kubeflow_v2_runner.py"
    python kubeflow_v2_runner.py

By hand, it writes ``NAME.yaml`` for open-source Kubeflow Pipelines, as ``stagecraft compile`` does.
Which settings: see ``pipeline/configs.py``.
"""

from __future__ import annotations

import pathlib
import sys

from absl import logging

from stagecraft.common.errors import UserError
from stagecraft.contrib import tfx_command
from stagecraft.contrib.vertex import runner
from stagecraft.pipeline import configs
from stagecraft.pipeline.kubeflow import compile, document


def main() -> None:
    """Compiles."""
    logging.set_verbosity(logging.INFO)
    try:
        engine = tfx_command.engine()
        if engine == "vertex":
            runner.compile_pipeline(configs.SETTINGS)
        else:
            output = pathlib.Path(f"{configs.PIPELINE_NAME}.yaml")
            if engine is None:  # else the command says where to
                document.check_output(output)
            compile.compile_pipeline(configs.SETTINGS, output)
    except UserError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
