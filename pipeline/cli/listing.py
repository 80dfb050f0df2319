"""What ``stagecraft history`` does: find the runs, read the newest, show them."""

from __future__ import annotations

import pathlib

from stagecraft.pipeline.cli import console, past
from stagecraft.pipeline.history import past_run, runs
from stagecraft.schemas.errors import UserError

_HEADER = (
    "RUN",
    "OUTPUT",
    "STATE",
    "DATA",
    "TOPOLOGY",
    "TIME",
    "ACCURACY",
    "BLESSED",
    "PUSHED",
    "SETTINGS",
)


def show(folders: tuple[pathlib.Path, ...], *, limit: int, as_json: bool) -> int:
    """Shows the newest runs; the command's exit code."""
    try:
        if not folders and not runs.RUNS.is_dir():
            raise UserError(
                f"there is no folder {runs.RUNS}/ here; run stagecraft run first, or give a folder "
                "that holds what runs wrote"
            )
        found, problems = runs.below(folders or (runs.RUNS,))
        past_runs = [past_run.read(run) for run in found[:limit]]
        if not past_runs:
            where = ", ".join(map(str, folders or (runs.RUNS,)))
            raise UserError(f"{where}: no run has begun here; run stagecraft run first")
    except UserError as error:
        return past.refuse(error, as_json=as_json)
    for problem in problems:
        console.say(f"Left out: {problem}", stderr=True)
    if as_json:
        console.say_json({"runs": [run.as_json() for run in past_runs]})
        return 0
    console.columns(_HEADER, [_line(run) for run in past_runs], folded=True)
    if len(found) > limit:
        console.say(f"The newest {limit} of {len(found)}; --limit shows more.", stderr=True)
    return 0


def _line(run: past_run.PastRun) -> tuple[str, ...]:
    changed = {
        name: value
        for name, value in run.changed.items()
        if value is not None and name != "data.source"  # DATA has it
    }
    return (
        past.short_id(run.id),
        str(run.output),
        past.state(run),
        past.data(run),
        run.topology,
        past.time(run),
        past.accuracy(run),
        past.blessed(run),
        past.pushed(run),
        " ".join(f"{name}={past.value(value)}" for name, value in changed.items()),
    )
