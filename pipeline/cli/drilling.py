"""What ``stagecraft drill`` does: choose, run, show."""

from __future__ import annotations

import dataclasses
import difflib
import pathlib
import shutil
import tempfile
import time
from typing import IO, Any

from stagecraft.pipeline.checks import early_checks
from stagecraft.pipeline.cli import console
from stagecraft.pipeline.cli.options import data_override
from stagecraft.pipeline.drill.drill import Drill
from stagecraft.pipeline.drill.scenarios import SCENARIOS, Row
from stagecraft.pipeline.settings import PipelineSettings, SettingsError, load
from stagecraft.schemas.columns import columns
from stagecraft.schemas.errors import UserError
from stagecraft.schemas.foreign_errors import said

HEADER = (
    "scenario",
    "detected after",
    "recovered after",
    "steps lost",
    "weights",
    "seconds",
    "verdict",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The command line of ``stagecraft drill``, as given."""

    config: str
    overrides: tuple[str, ...]
    data: str | None
    scenarios: tuple[str, ...]
    as_list: bool
    as_json: bool


def run(request: Request) -> int:
    """Runs the scenarios and shows what came of them; the command's exit code."""
    if request.as_list:
        if request.as_json:
            console.say_json({name: what for name, (what, _) in SCENARIOS.items()})
        else:
            console.rows([(name, what) for name, (what, _) in SCENARIOS.items()])
        return 0
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stagecraft-drill-"))
    found: dict[str, tuple[Row, float]] = {}
    keep = False
    try:
        names = _chosen(request.scenarios)
        settings = _settings(request)
        keep = True
        with (folder / "drill.log").open("ab", buffering=0) as log:
            found = _found(settings, names, folder, log, stderr=request.as_json)
        keep = not all(row.passed for row, _ in found.values())
    except (SettingsError, UserError) as error:
        if request.as_json:
            console.say_json({"passed": False, "scenarios": [], "error": str(error)})
        console.error(str(error))
        return 1
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    table = columns([HEADER, *(_cells(name, *each) for name, each in found.items())])
    console.say(table, stderr=request.as_json)
    for name, (row, _) in found.items():
        if not row.passed:
            console.error(f"{name}: not as it should be: {row.said or 'see the log'}")
    if keep:
        console.error(f"log: {folder / 'drill.log'}")
    if request.as_json:
        console.say_json({"passed": not keep, "scenarios": _as_json(found)})
    return 1 if keep else 0


def _chosen(names: tuple[str, ...]) -> list[str]:
    for name in names:
        if name not in SCENARIOS:
            near = difflib.get_close_matches(name, SCENARIOS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SCENARIOS)}"
            raise UserError(f"--scenario: there is no {name!r}; {hint}")
    return list(dict.fromkeys(names)) or list(SCENARIOS)


def _settings(request: Request) -> PipelineSettings:
    small = ("data.sample_train=600", "data.sample_test=100")
    settings = load(request.config, (*small, *request.overrides, *data_override(request.data)))
    early_checks.check_data(settings)
    early_checks.check_model(settings)
    return settings


def _found(
    settings: PipelineSettings,
    names: list[str],
    folder: pathlib.Path,
    log: IO[bytes],
    *,
    stderr: bool,
) -> dict[str, tuple[Row, float]]:
    began = time.monotonic()

    def told(text: str) -> None:
        console.say(f"{time.monotonic() - began:5.0f} s  {text}", stderr=stderr)

    told("data")
    drill = Drill(settings, folder, log)
    found = {}
    for name in names:
        what, scenario = SCENARIOS[name]
        told(f"{name}: {what}")
        started = time.monotonic()
        try:
            row = scenario(drill, name)
        except Exception as error:  # the others are worth seeing all the same
            row = Row(passed=False, said=said(error))
        found[name] = (row, time.monotonic() - started)
        told(f"{name}: {_verdict(row)}")
    return found


def _verdict(row: Row) -> str:
    return "as it should" if row.passed else "NOT as it should"


def _cells(name: str, row: Row, seconds: float) -> tuple[str, ...]:
    equal = {True: "equal", False: "differ", None: "–"}[row.equal]
    return (
        name,
        "–" if row.detected is None else f"{row.detected:.1f} s",
        "–" if row.recovered is None else f"{row.recovered:.1f} s",
        "–" if row.steps_lost is None else str(row.steps_lost),
        equal,
        f"{seconds:.0f}",
        _verdict(row),
    )


def _as_json(found: dict[str, tuple[Row, float]]) -> list[dict[str, Any]]:
    return [
        {"scenario": name, **dataclasses.asdict(row), "seconds": round(seconds, 2)}
        for name, (row, seconds) in found.items()
    ]
