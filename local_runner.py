"""Runs the pipeline on this machine, for the ``tfx`` command and by hand.

::

    tfx pipeline create --engine=local --pipeline-path "$PWD/local_runner.py"
    tfx run create --engine=local --pipeline-name quickstart
    python local_runner.py

Which settings: see ``pipeline/configs.py``. ``stagecraft run`` does the same and shows more.
"""

from __future__ import annotations

import pathlib

from absl import logging

from stagecraft.pipeline import configs
from stagecraft.pipeline.local.runners import LocalRunner
from stagecraft.pipeline.pipeline import create_pipeline
from stagecraft.trainer_module.parallel.topology import configure_devices

HERE = pathlib.Path(__file__).resolve().parent


def main() -> None:
    """Creates and runs the pipeline."""
    logging.set_verbosity(logging.INFO)
    configure_devices(configs.SETTINGS.parallel)
    LocalRunner().run(create_pipeline(configs.SETTINGS, HERE / configs.OUTPUT))


if __name__ == "__main__":
    main()
