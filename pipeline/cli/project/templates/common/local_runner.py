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
        LocalRunner().run(create_pipeline())


if __name__ == "__main__":
    main()
