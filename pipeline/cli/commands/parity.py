"""``stagecraft parity``."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console

if TYPE_CHECKING:
    from stagecraft.pipeline.settings import PipelineSettings
    from stagecraft.trainer_module.parity.cases import Case
    from stagecraft.trainer_module.parity.report import Row


@click.command(
    cls=Command,
    quiet=False,
    failure=lambda params: {"equal": False, "topologies": []},
    short_help="Prove that topologies compute what one device computes.",
)
@options.settings_options
@options.data_option
@click.option(
    "--topologies",
    default="all",
    show_default=True,
    metavar="NAME,NAME…|all",
    help="The topologies to check; --list shows their names.",
)
@click.option("--list", "as_list", is_flag=True, help="List the topologies, and check nothing.")
@options.json_option
def parity(
    config: str,
    overrides: tuple[str, ...],
    data: str | None,
    topologies: str,
    as_list: bool,
    as_json: bool,
) -> int:
    """Prove that topologies compute what one device computes.

    Each topology trains some steps in separate processes, on logical CPU devices of this machine.
    One device trains the same model with the same examples, seed and global batch. The check
    compares gradients from equal weights, and float64 weights after some steps. It also checks that
    all replicas hold exactly the same variables. It reports how the float32 weights differ after
    some steps. This difference does not count, because training amplifies rounding.

    \b
    stagecraft parity --list
    stagecraft parity --topologies mirrored-2,stages-3
    stagecraft parity --config cifar10 --data ~/cifar-10-binary.tar.gz
    stagecraft parity --set parallel.strategy=grid --set parallel.stages=2 \\
        --set parallel.virtual_devices=2 --topologies configured

    The settings parity.steps, parity.batch_size and parity.timeout_seconds set the size of the
    check. Exit code: 0 if all topologies are equal; 1 if one differs or fails; 130 after Ctrl-C.
    """
    started = time.monotonic()
    from stagecraft.pipeline.checks import early_checks
    from stagecraft.trainer_module.parity import cases
    from stagecraft.trainer_module.parity.report import ParityReport

    settings = options.load_settings(config, overrides, data)
    early_checks.check_data(settings)
    early_checks.check_model(settings)
    chosen = cases.select(
        "all" if as_list else topologies,
        settings.resolved(settings.schema_path) if settings.schema_path else settings,
        steps=settings.parity.steps,
        batch_size=settings.parity.batch_size,
    )
    if as_list:
        descriptions = {case.name: cases.description(case) for case in chosen}
        if as_json:
            console.say_json(descriptions)
        else:
            console.fields(list(descriptions.items()))
        return 0

    folder, failed = pathlib.Path(tempfile.mkdtemp(prefix="stagecraft-parity-")), False
    try:
        report = ParityReport(tuple(check_topologies(settings, chosen, folder, stderr=as_json)))
        failed = any(row.cause is not None for row in report.rows)
    finally:
        if not failed:
            shutil.rmtree(folder)
    console.say(report.table(), stderr=as_json)
    for row in report.rows:
        if not row.equal:
            console.error(f"{row.topology}: {row.reason}")
        if row.note:
            console.say(f"{row.topology}: {row.note}", stderr=as_json)
    if failed:
        console.error(f"logs: {folder}")
    if as_json:
        console.say_json(
            {
                "equal": bool(report),
                "seconds": round(time.monotonic() - started, 2),
                "topologies": [row.as_json() for row in report.rows],
            }
        )
    return 0 if report else 1


def check_topologies(
    settings: PipelineSettings, chosen: Sequence[Case], folder: pathlib.Path, *, stderr: bool
) -> list[Row]:
    """Checks topologies one after the other, and prints the progress."""
    from stagecraft.pipeline.checks import preflight  # with TensorFlow
    from stagecraft.pipeline.local import parity_data
    from stagecraft.trainer_module.parity.check import Check

    started = time.monotonic()
    data, arguments = folder / "data.npz", preflight.model_arguments(settings)
    largest = max(case.settings.train.batch_size for case in chosen)
    parity_data.save(settings, largest, data, arguments)

    def report_phase(topology: str, phase: str) -> None:
        seconds = time.monotonic() - started
        console.say(f"{seconds:5.0f} s  {topology}: {phase}", stderr=stderr)

    check = Check(
        data,
        arguments,
        folder,
        steps=settings.parity.steps,
        timeout_seconds=settings.parity.timeout_seconds,
        on_phase=report_phase,
    )
    rows = []
    for row in check.rows(chosen):
        rows.append(row)
        report_phase(row.topology, row.verdict)
    return rows
