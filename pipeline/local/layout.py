"""Where things are in an output folder."""

from __future__ import annotations

import pathlib


def pipeline_root(output: pathlib.Path) -> pathlib.Path:
    """Artifacts: ``<node>/<output key>/<execution id>``."""
    return output / "pipeline_root"


def metadata_db(output: pathlib.Path) -> pathlib.Path:
    """ML Metadata's SQLite file."""
    return output / "metadata.db"


def checkpoints(output: pathlib.Path) -> pathlib.Path:
    """What stopped trainings go on from: one folder for each."""
    return output / "checkpoints"


def logs(output: pathlib.Path) -> pathlib.Path:
    """One file a run, named by the time it started."""
    return output / "logs"


def serving(output: pathlib.Path) -> pathlib.Path:
    """Pushed models: one folder a version, unless ``push.directory`` names another place."""
    return output / "serving"
