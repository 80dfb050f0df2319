"""Compiles the pipeline for Kubeflow Pipelines or Vertex AI.

::

    python kubeflow_v2_runner.py    # writes {{PIPELINE_NAME}}.yaml for Kubeflow Pipelines

    stagecraft tfx pipeline create --engine=kubeflow --pipeline-path=kubeflow_v2_runner.py
    tfx pipeline create --engine=vertex --pipeline-path=kubeflow_v2_runner.py
"""

from absl import logging
from pipeline import configs
from pipeline.pipeline import create_pipeline
from stagecraft.pipeline import KubeflowRunner, VertexRunner, check_kubeflow, tfx_engine
from tfx import v1 as tfx


def main() -> None:
    """Compiles."""
    logging.set_verbosity(logging.INFO)
    settings = configs.SETTINGS
    # Each run can set them: "stagecraft kubeflow run --parameter train_learning_rate=0.01".
    defaults = {
        "train_epochs": float(settings.train.epochs),
        "train_learning_rate": settings.train.learning_rate,
    }
    if settings.data.source != "sample":
        defaults["data_source"] = settings.data.source
    parameters = {
        name: tfx.dsl.experimental.RuntimeParameter(name, type(value), value)
        for name, value in defaults.items()
    }
    is_vertex = tfx_engine() == "vertex"
    runner = (
        VertexRunner(settings.kubeflow)
        if is_vertex
        else KubeflowRunner(settings.kubeflow, output_filename=f"{configs.PIPELINE_NAME}.yaml")
    )
    with configs.in_project():
        check_kubeflow(settings)
        pipeline = create_pipeline(
            settings,
            pipeline_root=settings.kubeflow.pipeline_root,
            serving_model_dir=f"{settings.kubeflow.pipeline_root}/serving",
            checkpoint_root=settings.kubeflow.checkpoints,
            is_vertex=is_vertex,
            **parameters,
        )
        runner.run(pipeline, defaults)


if __name__ == "__main__":
    main()
