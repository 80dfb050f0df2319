"""The runs that output folders keep: found, listed, chosen. Nothing is read of them but names.

Needs ML Metadata alone, which takes half a second; stores are opened to be read.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.components.metadata import file, run_metadata
from stagecraft.pipeline.local import layout
from stagecraft.schemas.errors import UserError

RUNS = pathlib.Path("runs")
"""Where ``stagecraft run`` makes its output folders, unless it is told otherwise."""

_NAMED = 5
"""Runs that a refusal names."""


class Found(NamedTuple):
    """A run, and where it is kept."""

    output: pathlib.Path
    id: str
    context: int
    """Its id in ML Metadata, where a later run has a higher one."""
    began: float
    """Seconds since 1970."""

    @property
    def address(self) -> str:
        """What names it on a command line."""
        return f"{self.output}@{self.id}"


def of_output(output: pathlib.Path) -> list[Found]:
    """The runs of an output folder, newest first.

    Raises:
        UserError: no run left anything there; a MetadataFileError: what is there cannot be read.
    """
    metadata_db = layout.metadata_db(output)
    if not metadata_db.exists():
        raise UserError(
            f"{output}: no run left anything here (there is no {metadata_db.name}); give the "
            "folder that stagecraft run wrote, such as runs/quickstart"
        )
    file.check(metadata_db)
    return [
        Found(output, context.name, context.id, context.create_time_since_epoch / 1000)
        for context in run_metadata.run_contexts(metadata_db)
    ]


def choose(output: pathlib.Path, run_id: str | None = None) -> Found:
    """One of an output folder's runs.

    Args:
        output: the folder.
        run_id: of the run, or how it begins; None: the newest one.

    Raises:
        UserError: there is no such run, or there are several.
    """
    runs = of_output(output)
    if not runs:
        raise UserError(f"{output}: no run has begun here; run stagecraft run first")
    if run_id is None:
        return runs[0]
    found = _matching(runs, run_id)
    if not found:
        newest = ", ".join(run.id for run in runs[:_NAMED])
        raise UserError(f"{output}: there is no run {run_id}; the newest are {newest}")
    return _only(found, run_id)


def named(text: str, root: pathlib.Path = RUNS) -> Found:
    """The run that a command line names.

    Args:
        text: an output folder, for its newest run; ``FOLDER@ID``; or an ID, of a run below
            ``root``. An ID may be cut short.
        root: folder of output folders.

    Raises:
        UserError: there is no such run, or there are several.
    """
    folder, at, run_id = text.rpartition("@")
    if pathlib.Path(text).is_dir():
        return choose(pathlib.Path(text))
    if at:
        return choose(pathlib.Path(folder), run_id)
    found = _matching(below([root])[0], text) if root.is_dir() else []
    if not found:
        raise UserError(
            f"{text}: there is no such folder, and no run below {root}/ whose ID begins so; "
            "stagecraft history lists the runs"
        )
    return _only(found, text)


def before(run: Found) -> Found:
    """The run that came before one, in the same output folder.

    Raises:
        UserError: it is the first.
    """
    earlier = [other for other in of_output(run.output) if other.context < run.context]
    if not earlier:
        raise UserError(
            f"{run.address} is the first run in {run.output}: there is none before it to compare "
            "with; name another run too"
        )
    return earlier[0]


def below(folders: Sequence[pathlib.Path]) -> tuple[list[Found], list[str]]:
    """All runs kept in some folders, at any depth, newest first.

    Returns:
        The runs; and why some stores could not be read, a sentence each.

    Raises:
        UserError: a folder is not there, or no run left anything in it, or none can be read.
    """
    found: list[Found] = []
    problems = []
    for output in {each.resolve(): each for folder in folders for each in outputs(folder)}.values():
        try:
            found += of_output(output)
        except UserError as error:
            problems.append(str(error))
    if problems and not found:
        raise UserError("; ".join(problems))
    return sorted(found, key=lambda run: -run.began), problems


def outputs(folder: pathlib.Path) -> list[pathlib.Path]:
    """The output folders in a folder, at any depth, or itself.

    Raises:
        UserError: there is no such folder, or no run left anything in it.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise UserError(f"{folder}: {what}; give a folder that holds runs' outputs")
    found = []
    for place, folders, files in os.walk(folder):
        folders.sort()
        if layout.metadata_db(pathlib.Path(place)).name in files:
            found.append(pathlib.Path(place))
            folders.clear()  # its artifacts are many
    if not found:
        raise UserError(
            f"{folder}: no run left anything here or below; give a folder that stagecraft run "
            "wrote, or one that holds such folders"
        )
    return found


def _matching(runs: list[Found], run_id: str) -> list[Found]:
    """Those with the ID, or else those whose ID begins so."""
    if not run_id:
        return []
    exact = [run for run in runs if run.id == run_id]
    return exact or [run for run in runs if run.id.startswith(run_id)]


def _only(found: list[Found], run_id: str) -> Found:
    if len(found) > 1:
        several = ", ".join(run.address for run in found[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise UserError(
            f"the IDs of {len(found)} runs begin with {run_id!r}: {several}{more}; name one of them"
        )
    return found[0]
