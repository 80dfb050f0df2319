"""``stagecraft drill``."""

from __future__ import annotations

import dataclasses
import difflib
import pathlib
import shutil
import tempfile
import time
from typing import IO, TYPE_CHECKING

import click

from stagecraft.common.errors import UserError
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console

if TYPE_CHECKING:
    from stagecraft.pipeline.drill.scenarios import Result
    from stagecraft.pipeline.settings import PipelineSettings

HEADER = (
    "scenario",
    "detected after",
    "recovered after",
    "steps lost",
    "weights",
    "seconds",
    "verdict",
)


@click.command(
    cls=Command,
    failure=lambda params: {"passed": False, "scenarios": []},
    short_help="Inject faults into training runs, and check that they recover.",
)
@options.settings_options
@options.data_option
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="NAME",
    help="The scenario to run; repeatable. Default: all; --list shows their names.",
)
@click.option("--list", "as_list", is_flag=True, help="List the scenarios, and run nothing.")
@options.json_option
def drill(
    config: str,
    overrides: tuple[str, ...],
    data: str | None,
    scenarios: tuple[str, ...],
    as_list: bool,
    as_json: bool,
) -> int:
    """Inject faults into training runs, and check that they recover.

    Each scenario trains a small model in several processes on this machine and injects a fault: a
    killed or frozen process, a full disk, a corrupt record. It measures how long the training run
    takes to detect the fault and to recover, and how many steps it repeats. It also checks that the
    final weights equal those of a training run without a fault, bit for bit. The drill does not
    touch your runs.

    \b
    stagecraft drill --list
    stagecraft drill --scenario worker-killed --scenario preempted
    stagecraft drill --data ~/cifar-10-binary.tar.gz --set train.model=resnet20

    All scenarios take about 15 minutes on two cores. Exit code: 0 if all passed; 1 if one failed;
    130 after Ctrl-C.
    """
    from stagecraft.common.text import columns
    from stagecraft.pipeline.drill.scenarios import SCENARIOS  # with TensorFlow

    if as_list:
        descriptions = {name: scenario.description for name, scenario in SCENARIOS.items()}
        if as_json:
            console.say_json(descriptions)
        else:
            console.fields(list(descriptions.items()))
        return 0
    names = _choose(scenarios)
    settings = _settings(config, overrides, data)
    folder, passed = pathlib.Path(tempfile.mkdtemp(prefix="stagecraft-drill-")), False
    try:
        with (folder / "drill.log").open("ab", buffering=0) as log:
            results = _run(settings, names, folder, log, stderr=as_json)
        passed = all(result.passed for result, _ in results.values())
    finally:
        if passed:
            shutil.rmtree(folder, ignore_errors=True)
    table = columns([HEADER, *(_cells(name, *each) for name, each in results.items())])
    console.say(table, stderr=as_json)
    for name, (result, _) in results.items():
        if not result.passed:
            console.error(f"{name} failed: {result.said or 'see the log'}")
    if not passed:
        console.error(f"log: {folder / 'drill.log'}")
    if as_json:
        rows = [
            {"scenario": name, **dataclasses.asdict(result), "seconds": round(seconds, 2)}
            for name, (result, seconds) in results.items()
        ]
        console.say_json({"passed": passed, "scenarios": rows})
    return 0 if passed else 1


def _choose(names: tuple[str, ...]) -> list[str]:
    from stagecraft.pipeline.drill.scenarios import SCENARIOS

    for name in names:
        if name not in SCENARIOS:
            near = difflib.get_close_matches(name, SCENARIOS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(SCENARIOS)}"
            raise UserError(
                f"--scenario: there is no {name!r}; {hint}",
                setting="--scenario",
                value=name,
                suggestion=near[0] if near else "",
            )
    return list(dict.fromkeys(names)) or list(SCENARIOS)


def _settings(config: str, overrides: tuple[str, ...], data: str | None) -> PipelineSettings:
    from stagecraft.pipeline.checks import early_checks

    small = ("data.sample_train=600", "data.sample_test=100")
    settings = options.load_settings(config, (*small, *overrides), data)
    early_checks.check_data(settings)
    early_checks.check_model(settings)
    return settings


def _run(
    settings: PipelineSettings,
    names: list[str],
    folder: pathlib.Path,
    log: IO[bytes],
    *,
    stderr: bool,
) -> dict[str, tuple[Result, float]]:
    """Runs scenarios; by name, the result and the seconds that it took."""
    from stagecraft.common.errors import said
    from stagecraft.pipeline.drill.drill import Drill
    from stagecraft.pipeline.drill.scenarios import SCENARIOS, Result

    began = time.monotonic()

    def report(text: str) -> None:
        console.say(f"{time.monotonic() - began:5.0f} s  {text}", stderr=stderr)

    report("data")
    shared = Drill(settings, folder, log)
    results = {}
    for name in names:
        report(f"{name}: {SCENARIOS[name].description}")
        started = time.monotonic()
        try:
            result = SCENARIOS[name].run(shared, name)
        except Exception as error:  # the other scenarios can still run
            result = Result(passed=False, said=said(error))
        results[name] = (result, time.monotonic() - started)
        report(f"{name}: {_verdict(result)}")
    return results


def _verdict(result: Result) -> str:
    return "passed" if result.passed else "FAILED"


def _cells(name: str, result: Result, seconds: float) -> tuple[str, ...]:
    return (
        name,
        "–" if result.detected is None else f"{result.detected:.1f} s",
        "–" if result.recovered is None else f"{result.recovered:.1f} s",
        "–" if result.steps_lost is None else str(result.steps_lost),
        {True: "equal", False: "differ", None: "–"}[result.equal],
        f"{seconds:.0f}",
        _verdict(result),
    )
