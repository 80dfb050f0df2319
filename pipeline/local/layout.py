"""Paths in an output folder."""

from __future__ import annotations

import pathlib

from stagecraft.common.errors import UserError


class OutputError(UserError):
    """A file or folder of ``--output`` that cannot be written."""

    def __init__(self, path: pathlib.Path, error: OSError):
        super().__init__(
            f"{path}: cannot be written ({error.strerror or error}); use another --output",
            setting="--output",
            value=str(path),
            file=str(error.filename or path),
        )


def pipeline_root(output: pathlib.Path) -> pathlib.Path:
    """Artifacts: ``<node>/<output key>/<execution id>``."""
    return output / "pipeline_root"


def metadata_db(output: pathlib.Path) -> pathlib.Path:
    """ML Metadata's SQLite file."""
    return output / "metadata.db"


def checkpoints(output: pathlib.Path) -> pathlib.Path:
    """Checkpoints of interrupted trainings: one folder each."""
    return output / "checkpoints"


def logs(output: pathlib.Path) -> pathlib.Path:
    """Logs: one file per run, named after its start time."""
    return output / "logs"


def serving(output: pathlib.Path, directory: str | None = None) -> str:
    """Pushed models, one folder per version.

    Args:
        directory: ``push.directory``, which overrides the folder in the output: a path, or an
            address of an object store.
    """
    if directory and "://" in directory:
        return directory
    return str((pathlib.Path(directory) if directory else output / "serving").absolute())
