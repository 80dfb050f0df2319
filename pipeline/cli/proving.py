"""What ``stagecraft parity`` does: choose, run, show."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import tempfile
import time
from typing import Any

from stagecraft.pipeline import parity_data
from stagecraft.pipeline.checks import early_checks
from stagecraft.pipeline.cli import console
from stagecraft.pipeline.cli.options import data_override
from stagecraft.pipeline.settings import PipelineSettings, SettingsError, load
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parity import cases, report
from stagecraft.trainer_module.parity.cases import Case
from stagecraft.trainer_module.parity.check import Check
from stagecraft.trainer_module.parity.report import Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The command line of ``stagecraft parity``, as given."""

    config: str
    overrides: tuple[str, ...]
    data: str | None
    topologies: str
    as_list: bool
    as_json: bool


def prove(request: Request) -> int:
    """Compares and shows; the command's exit code."""
    started = time.monotonic()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stagecraft-parity-"))
    failed = False
    try:
        settings, chosen = _chosen(request)
        if request.as_list:
            _show_list(chosen, as_json=request.as_json)
            return 0
        rows = _rows(settings, chosen, folder, started, stderr=request.as_json)
        failed = any(row.cause is not None for row in rows)
    except (SettingsError, UserError) as error:
        if request.as_json:
            console.say_json({"equal": False, "topologies": [], "error": str(error)})
        console.error(str(error))
        return 1
    finally:
        if not failed:
            shutil.rmtree(folder)
    equal = all(row.equal for row in rows)
    console.say(report.text(rows), stderr=request.as_json)
    for row in rows:
        if not row.equal:
            console.error(f"{row.topology}: {row.reason}")
        if row.note:
            console.say(f"{row.topology}: {row.note}", stderr=request.as_json)
    if failed:
        console.error(f"logs: {folder}")
    if request.as_json:
        found: dict[str, Any] = {
            "equal": equal,
            "seconds": round(time.monotonic() - started, 2),
            "topologies": [row.as_json() for row in rows],
        }
        console.say_json(found)
    return 0 if equal else 1


def _chosen(request: Request) -> tuple[PipelineSettings, list[Case]]:
    settings = load(request.config, (*request.overrides, *data_override(request.data)))
    early_checks.check_data(settings)
    early_checks.check_model(settings)
    names = "all" if request.as_list else request.topologies
    chosen = cases.select(
        names, settings, steps=settings.parity.steps, batch_size=settings.parity.batch_size
    )
    return settings, chosen


def _show_list(chosen: list[Case], *, as_json: bool) -> None:
    what = {case.name: cases.description(case) for case in chosen}
    if as_json:
        console.say_json(what)
    else:
        console.rows(list(what.items()))


def _rows(
    settings: PipelineSettings,
    chosen: list[Case],
    folder: pathlib.Path,
    started: float,
    *,
    stderr: bool,
) -> list[Row]:
    from stagecraft.pipeline.checks import classes  # and TensorFlow, after what needs none

    data, count = folder / "data.npz", classes.count(settings.data)
    largest = max(case.settings.train.batch_size for case in chosen)
    parity_data.save(settings.data, largest, data, count)

    def told(topology: str, phase: str) -> None:
        seconds = time.monotonic() - started
        console.say(f"{seconds:5.0f} s  {topology}: {phase}", stderr=stderr)

    check = Check(
        data,
        count,
        folder,
        steps=settings.parity.steps,
        timeout_seconds=settings.parity.timeout_seconds,
        on_phase=told,
    )
    rows = []
    for row in check.rows(chosen):
        rows.append(row)
        told(row.topology, row.verdict)
    return rows
