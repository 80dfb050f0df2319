"""Runs the pipeline on this machine.

::

    python local_runner.py

    tfx pipeline create --engine=local --pipeline-path=local_runner.py
    tfx run create --engine=local --pipeline-name={{PIPELINE_NAME}}
"""

from absl import logging
from pipeline import configs
from pipeline.pipeline import create_pipeline
from stagecraft.pipeline import LocalRunner, configure_devices


def main() -> None:
    """Creates and runs the pipeline."""
    logging.set_verbosity(logging.WARNING)  # INFO shows what TFX does
    configure_devices(configs.SETTINGS.parallel)  # before TensorFlow starts
    with configs.in_project():
        pipeline = create_pipeline(
            configs.SETTINGS,
            pipeline_root=str(configs.OUTPUT / "pipeline_root"),
            serving_model_dir=str(configs.OUTPUT / "serving"),
            checkpoint_root=str(configs.OUTPUT / "checkpoints"),
            metadata_path=str(configs.OUTPUT / "metadata.db"),
        )
        LocalRunner().run(pipeline)


if __name__ == "__main__":
    main()
