"""Finds, lists and chooses the runs in output folders; opens stores only to read them."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import file, rollbacks, run_metadata
from stagecraft.components.metadata.rollbacks import Rollback
from stagecraft.pipeline.local import layout

RUNS = pathlib.Path("runs")

_NAMED = 5


class RecordedRun(NamedTuple):
    """A run in the metadata of an output folder."""

    output: pathlib.Path
    id: str
    context: int
    """Its ID in ML Metadata; later runs have higher ones."""
    began: float
    """Seconds since 1970."""

    @property
    def address(self) -> str:
        """Its name on a command line."""
        return f"{self.output}@{self.id}"


def list_runs(output: pathlib.Path) -> list[RecordedRun]:
    """The runs of an output folder, newest first."""
    metadata_db = layout.metadata_db(output)
    if not metadata_db.exists():
        raise UserError(
            f"{output}: this is not the output folder of a run (it has no {metadata_db.name}); "
            "name a folder that stagecraft run wrote, such as runs/quickstart",
            file=str(output),
        )
    file.check(metadata_db)
    return [
        RecordedRun(output, context.name, context.id, context.create_time_since_epoch / 1000)
        for context in run_metadata.run_contexts(metadata_db)
    ]


def choose(output: pathlib.Path, run_id: str | None = None) -> RecordedRun:
    """The run whose ID begins with ``run_id``, of an output folder; by default, the newest run."""
    runs = list_runs(output)
    if not runs:
        raise UserError(
            f"{output}: this folder has no run yet; run 'stagecraft run' first", file=str(output)
        )
    if run_id is None:
        return runs[0]
    matching = _matching(runs, run_id)
    if not matching:
        newest = ", ".join(run.id for run in runs[:_NAMED])
        raise UserError(
            f"{output}: there is no run {run_id!r}; the newest are {newest}",
            file=str(output),
            value=run_id,
            suggestion=runs[0].id,
        )
    return _only(matching, run_id)


def find(text: str, root: pathlib.Path = RUNS) -> RecordedRun:
    """The run that a text names: an output folder, ``FOLDER@ID``, or an ID below ``root``."""
    folder, at, run_id = text.rpartition("@")
    if pathlib.Path(text).is_dir():
        return choose(pathlib.Path(text))
    if at:
        return choose(pathlib.Path(folder), run_id)
    matching = _matching(find_all([root])[0], text) if root.is_dir() else []
    if not matching:
        raise UserError(
            f"{text}: no such folder, and no run below {root}/ has this ID; "
            "'stagecraft history' lists the runs",
            value=text,
        )
    return _only(matching, text)


def previous(run: RecordedRun) -> RecordedRun:
    """The run before another one in the same output folder; raises a UserError for the first."""
    earlier = [other for other in list_runs(run.output) if other.context < run.context]
    if not earlier:
        raise UserError(
            f"{run.address} is the first run in {run.output}: there is no run before it; name two "
            "runs",
            value=run.address,
        )
    return earlier[0]


def find_all(folders: Sequence[pathlib.Path]) -> tuple[list[RecordedRun], list[str]]:
    """All runs in some folders, newest first; and a sentence for each store that cannot be read."""
    runs: list[RecordedRun] = []
    problems = []
    outputs = {each.resolve(): each for folder in folders for each in find_outputs(folder)}
    for output in outputs.values():
        try:
            runs += list_runs(output)
        except UserError as error:
            problems.append(str(error))
    if problems and not runs:
        raise UserError("; ".join(problems))
    return sorted(runs, key=lambda run: -run.began), problems


def only_output(root: pathlib.Path = RUNS) -> pathlib.Path:
    """The output folder below ``root``; raises a UserError if there is none, or several."""
    outputs = find_outputs(root)
    if len(outputs) > 1:
        named = ", ".join(map(str, outputs[:_NAMED]))
        raise UserError(
            f"{root}: contains {len(outputs)} outputs of runs; name one with --output: {named}.",
            setting="--output",
            suggestion=f"--output {outputs[0]}",
            file=str(root),
        )
    return outputs[0]


def rolled_back(outputs: Iterable[pathlib.Path]) -> list[tuple[pathlib.Path, Rollback]]:
    """All rollbacks of the models of some output folders, newest first."""
    found = [
        (output, each) for output in outputs for each in rollbacks.read(layout.metadata_db(output))
    ]
    return sorted(found, key=lambda pair: -pair[1].time)


def find_outputs(folder: pathlib.Path) -> list[pathlib.Path]:
    """The output folders in a folder, at any depth; may be the folder itself."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "there is no such folder"
        raise UserError(
            f"{folder}: {problem}; name a folder that contains outputs of runs", file=str(folder)
        )
    folders_of_runs = []
    for place, folders, files in os.walk(folder):
        folders.sort()
        if layout.metadata_db(pathlib.Path(place)).name in files:
            folders_of_runs.append(pathlib.Path(place))
            folders.clear()  # it has many artifacts, and no other output
    if not folders_of_runs:
        raise UserError(
            f"{folder}: neither this folder nor its subfolders contain outputs of runs; name a "
            "folder that stagecraft run wrote, or its parent folder",
            file=str(folder),
        )
    return folders_of_runs


def _matching(runs: list[RecordedRun], run_id: str) -> list[RecordedRun]:
    """The runs with the ID; without one, the runs whose ID begins with it."""
    if not run_id:
        return []
    exact = [run for run in runs if run.id == run_id]
    return exact or [run for run in runs if run.id.startswith(run_id)]


def _only(runs: list[RecordedRun], run_id: str) -> RecordedRun:
    if len(runs) > 1:
        several = ", ".join(run.address for run in runs[:_NAMED])
        more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
        raise UserError(
            f"{len(runs)} runs have an ID that begins with {run_id!r}: {several}{more}; name one",
            value=run_id,
            suggestion=runs[0].address,
        )
    return runs[0]
