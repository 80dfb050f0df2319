"""Output folders that hold something before their execution begins.

TFX numbers executions by the metadata store and names an output folder
``PIPELINE_ROOT/NODE/KEY/EXECUTION``. If the store is lost, the numbers begin anew, and executions
write among the files of earlier ones.
"""

from __future__ import annotations

import os
import pathlib
import typing
from collections.abc import Iterable, Mapping, Sequence

from ml_metadata import metadata_store

from stagecraft.components.metadata import file
from stagecraft.schemas.errors import UserError

if typing.TYPE_CHECKING:
    from tfx import types


_UNKNOWN = (
    "this output folder holds files of an earlier execution, which the metadata store does not know"
)

_REMEDY = (
    "put the metadata store back that belongs to the pipeline root, or move the pipeline root away"
)


class OutputExistsError(UserError):
    """Files of another execution lie where an execution is to write."""

    def __init__(self, folder: str, why: str, remedy: str):
        """Describes the problem.

        Args:
            folder: that is not empty.
            why: what is known of it.
            remedy: what works.
        """
        super().__init__(f"{folder}: {why}; {remedy}")
        self.folder = folder


def check_known(metadata_db: str | os.PathLike[str], pipeline_root: str | os.PathLike[str]) -> None:
    """Refuses a pipeline root with outputs of executions that the metadata store does not know.

    Args:
        metadata_db: SQLite file; a missing one knows no execution.
        pipeline_root: folder of the outputs.

    Raises:
        OutputExistsError: there is such a folder; names the newest one.
        MetadataFileError: the store cannot be opened.
    """
    # First the folders, then the store: another run may be making both, the store's row first.
    newest = max(_numbered(pathlib.Path(pipeline_root)), default=None)
    if newest is None:
        return
    number, folder = newest
    known = _highest(metadata_db)
    if number <= known:
        return
    has = f"knows none after {known}" if known else "knows no execution"
    raise OutputExistsError(
        str(folder),
        f"holds outputs of execution {number}, but {os.fspath(metadata_db)} {has}, so that a run "
        "would write among old files",
        f"put the {os.path.basename(metadata_db)} back that belongs to them, or move "
        f"{os.fspath(pipeline_root)} away",
    )


def check_empty(outputs: Mapping[str, Sequence[types.Artifact]]) -> None:
    """Refuses output folders that are not empty.

    For a driver. An executor that fails loses its output folders: see :func:`keep_and_refuse`.

    Raises:
        OutputExistsError: names the folder.
    """
    for folder in _filled(outputs):
        raise OutputExistsError(folder, _UNKNOWN, _REMEDY)


def keep_and_refuse(outputs: Mapping[str, Sequence[types.Artifact]]) -> None:
    """As :func:`check_empty`, for an executor: TFX removes the outputs of one that fails.

    So the files are moved to a folder of the same name with ``.kept`` appended.

    Raises:
        OutputExistsError: names the folder, and where its files are.
    """
    from tfx.dsl.io import fileio

    for folder in _filled(outputs):
        kept = f"{folder.rstrip('/')}.kept"
        number = 1
        while fileio.exists(kept):
            number += 1
            kept = f"{folder.rstrip('/')}.kept{number}"
        fileio.rename(folder, kept)
        fileio.makedirs(folder)
        raise OutputExistsError(folder, f"{_UNKNOWN} (they are in {kept} now)", _REMEDY)


def _filled(outputs: Mapping[str, Sequence[types.Artifact]]) -> Iterable[str]:
    from tfx.dsl.io import fileio  # seconds, which check_known does without

    for artifacts in outputs.values():
        for artifact in artifacts:
            if fileio.exists(artifact.uri) and fileio.listdir(artifact.uri):
                yield artifact.uri


def _numbered(pipeline_root: pathlib.Path) -> Iterable[tuple[int, pathlib.Path]]:
    """``NODE/KEY/EXECUTION`` with something in it.

    Beside a node's outputs, TFX makes a folder ``.system``. Others are the user's, such as one of
    checkpoints.
    """
    for system in pipeline_root.glob("*/.system"):
        for folder in system.parent.glob("*/*"):
            if folder.name.isdecimal() and folder.is_dir() and any(folder.iterdir()):
                yield int(folder.name), folder


def _highest(metadata_db: str | os.PathLike[str]) -> int:
    if not os.path.exists(metadata_db) or not os.path.getsize(metadata_db):
        return 0
    newest = metadata_store.ListOptions(
        limit=1, order_by=metadata_store.OrderByField.ID, is_asc=False
    )
    executions = file.open_store(metadata_db).get_executions(list_options=newest)
    return max((int(execution.id) for execution in executions), default=0)
