"""Compiles the pipeline for Kubeflow Pipelines or Vertex AI.

::

    python kubeflow_v2_runner.py    # writes {{PIPELINE_NAME}}.yaml for Kubeflow Pipelines

    stagecraft tfx pipeline create --engine=kubeflow --pipeline-path=kubeflow_v2_runner.py
    tfx pipeline create --engine=vertex --pipeline-path=kubeflow_v2_runner.py

Each run can set runtime parameters, such as ``train_learning_rate`` and ``data_source``.
"""

import functools
import pathlib

from absl import logging
from pipeline import configs
from pipeline.pipeline import create_pipeline
from stagecraft.pipeline import compile_for_kubeflow, compile_for_vertex, tfx_engine


def main() -> None:
    """Compiles."""
    logging.set_verbosity(logging.INFO)
    folder = pathlib.Path.cwd()
    with configs.in_project():
        if tfx_engine() == "vertex":
            create = functools.partial(create_pipeline, engine="vertex")
            compile_for_vertex(configs.SETTINGS, str(folder), create=create)
        else:
            create = functools.partial(create_pipeline, engine="kubeflow")
            compile_for_kubeflow(
                configs.SETTINGS, folder / f"{configs.PIPELINE_NAME}.yaml", create=create
            )


if __name__ == "__main__":
    main()
