"""Checks that output folders are empty before their execution begins.

TFX takes the number of an execution from the metadata store, and names an output folder
``PIPELINE_ROOT/NODE/KEY/EXECUTION``. If the store is lost, the numbers start again at 1, and new
executions would write into folders of old ones.
"""

from __future__ import annotations

import os
import pathlib
import typing
from collections.abc import Iterable, Mapping, Sequence

from ml_metadata import metadata_store

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import file

if typing.TYPE_CHECKING:
    from tfx import types


_UNKNOWN = "files of an execution that the metadata store does not know"

_REMEDY = "Restore the metadata store of this pipeline root, or use another pipeline root."


class OutputExistsError(UserError):
    """An output folder has files of another execution."""

    def __init__(self, folder: str, why: str, remedy: str):
        super().__init__(f"{folder} {why}. {remedy}", file=folder, suggestion=remedy)


def check_known(metadata_db: str | os.PathLike[str], pipeline_root: str | os.PathLike[str]) -> None:
    """Refuses a pipeline root with outputs of executions that are not in the metadata store."""
    # TFX puts a folder .system next to a node's outputs. Folders without it are the user's, such as
    # checkpoints. Read the folders before the store: a concurrent run adds to the store first.
    newest = max(
        (
            (int(folder.name), folder)
            for system in pathlib.Path(pipeline_root).glob("*/.system")
            for folder in system.parent.glob("*/*")
            if folder.name.isdecimal() and folder.is_dir() and any(folder.iterdir())
        ),
        default=None,
    )
    if newest is None:
        return
    number, folder = newest
    known = _highest(metadata_db)
    if number <= known:
        return
    newest_known = f"ends at execution {known}" if known else "contains no execution"
    raise OutputExistsError(
        str(folder),
        f"contains outputs of execution {number}, but {os.fspath(metadata_db)} {newest_known}. A "
        "run would write into old folders",
        f"Restore the {os.path.basename(metadata_db)} of these outputs, or move "
        f"{os.fspath(pipeline_root)} away.",
    )


def check_empty(outputs: Mapping[str, Sequence[types.Artifact]]) -> None:
    """Refuses output folders that are not empty; for a driver.

    TFX removes the output folders of an executor that fails. Executors therefore call
    :func:`keep_and_refuse`.
    """
    for folder in _filled(outputs):
        raise OutputExistsError(folder, f"contains {_UNKNOWN}", _REMEDY)


def keep_and_refuse(outputs: Mapping[str, Sequence[types.Artifact]]) -> None:
    """Renames the folders that :func:`check_empty` refuses; TFX would remove them."""
    from tfx.dsl.io import fileio

    for folder in _filled(outputs):
        kept = f"{folder.rstrip('/')}.kept"
        number = 1
        while fileio.exists(kept):
            number += 1
            kept = f"{folder.rstrip('/')}.kept{number}"
        fileio.rename(folder, kept)
        fileio.makedirs(folder)
        moved = f"contained {_UNKNOWN}. Stagecraft moved the files to {kept}"
        raise OutputExistsError(folder, moved, _REMEDY)


def _filled(outputs: Mapping[str, Sequence[types.Artifact]]) -> Iterable[str]:
    from tfx.dsl.io import fileio  # takes seconds; check_known does not need it

    for artifacts in outputs.values():
        for artifact in artifacts:
            if fileio.exists(artifact.uri) and fileio.listdir(artifact.uri):
                yield artifact.uri


def _highest(metadata_db: str | os.PathLike[str]) -> int:
    if not os.path.exists(metadata_db) or not os.path.getsize(metadata_db):
        return 0
    newest = metadata_store.ListOptions(
        limit=1, order_by=metadata_store.OrderByField.ID, is_asc=False
    )
    executions = file.open_store(metadata_db).get_executions(list_options=newest)
    return max((int(execution.id) for execution in executions), default=0)
