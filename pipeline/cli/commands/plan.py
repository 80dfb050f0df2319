"""``stagecraft plan``."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import click

from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console
from stagecraft.schemas.errors import SettingError, UserError
from stagecraft.trainer_module.planning.accelerators import NETWORK_GBIT

if TYPE_CHECKING:
    from stagecraft.pipeline.settings import PipelineSettings
    from stagecraft.trainer_module.planning.plan import Plan
    from stagecraft.trainer_module.settings import ParallelSettings


@click.command(cls=Command, short_help="Estimate the cost of a topology, without training.")
@options.settings_options
@click.option(
    "--devices",
    metavar="NxNAME",
    help="Plan with the published peak rates of these devices, such as 4xA100-40GB for each "
    "worker. This machine does not need to have these devices.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure the time of each layer on the first device of this machine. Same as --set "
    "parallel.costs=measured.",
)
@click.option(
    "--network",
    type=click.FloatRange(min=0, min_open=True),
    default=NETWORK_GBIT,
    show_default=True,
    metavar="GBIT",
    help="Gbit/s between the hosts of workers, in one direction. The default is 10-Gbit Ethernet.",
)
@options.json_option
def plan(
    config: str,
    overrides: tuple[str, ...],
    devices: str | None,
    measure: bool,
    network: float,
    as_json: bool,
) -> None:
    """Estimate the cost of a topology, without training.

    The command shows the cuts of the model, the content of each stage and its share of the time,
    and the schedule of the microbatches. It also shows how long devices wait, and the speed-up over
    one device and over stages without microbatches. It says what limits the speed-up, and which
    topology would be faster.

    \b
    stagecraft plan --set parallel.strategy=grid --set parallel.stages=2 \\
        --set parallel.microbatches=4 --set parallel.virtual_devices=2
    stagecraft plan --config my.yaml --devices 4xA100-40GB

    Without --measure and --devices, the command counts floating-point operations instead of time.
    These counts compare stages, but ignore copies between devices and hosts. Each worker counts as
    a host. Exit code: 0; 1 if the topology cannot be planned.
    """
    if not math.isfinite(network):
        raise SettingError("--network", network, "is not a finite number", "--network 25 (Gbit/s)")
    if devices and measure:
        raise UserError(
            "--measure measures this machine, but --devices plans for other machines; use one",
            setting="--measure",
        )
    more = options.override("--measure", "parallel.costs", "measured" if measure else None)
    settings = options.load_settings(config, (*overrides, *more))
    result, notes = _plan(settings, devices, network)

    from stagecraft.trainer_module.planning.plan_text import plan_text

    console.say(plan_text(result), stderr=as_json)
    for note in notes:
        console.say(f"note: {note}", stderr=as_json)
    if as_json:
        console.say_json(dataclasses.asdict(result))


def _plan(
    settings: PipelineSettings, named_devices: str | None, network_gbit: float
) -> tuple[Plan, list[str]]:
    """The plan, and notes about the model."""
    from stagecraft.pipeline.checks import early_checks
    from stagecraft.trainer_module.planning import accelerators

    early_checks.check_model(settings)
    parallel, accelerator = settings.parallel, None
    if named_devices:
        count, accelerator = accelerators.parse(named_devices)
        available = [f"{accelerator.name}:{index}" for index in range(count)]
        devices = _first(available, parallel)

    # TensorFlow takes seconds to import: after all checks that do not need it.
    from stagecraft.pipeline.checks import preflight
    from stagecraft.pipeline.cli.terminal.run_view import progress_bar
    from stagecraft.trainer_module.parallel import topology
    from stagecraft.trainer_module.parallel.capabilities import capabilities
    from stagecraft.trainer_module.planning import planner

    if accelerator is None:
        if capabilities(parallel.strategy).remote_devices:
            devices = list(topology.resolve(parallel).devices)
        else:  # the devices of one worker; the plan needs no other
            topology.configure_devices(parallel)
            devices = list(topology.choose(parallel))
        available = topology.available(parallel)
    model, notes = preflight.build(settings)
    with progress_bar("timing the model's layers", stderr=True) as on_progress:
        result = planner.make_plan(
            model,
            settings,
            devices,
            available=len(available),
            accelerator=accelerator,
            network_gbit=network_gbit,
            on_progress=on_progress,
        )
    return result, notes


def _first(available: list[str], parallel: ParallelSettings) -> list[str]:
    """As many devices as one worker needs."""
    needed = parallel.replicas * parallel.stages
    if needed > len(available):
        name = available[0].partition(":")[0]
        raise UserError(
            f"--devices: parallel.replicas: {parallel.replicas} × parallel.stages: "
            f"{parallel.stages} need {needed} devices for each worker, but --devices has "
            f"{len(available)}; use --devices {needed}x{name}",
            setting="--devices",
            value=len(available),
            suggestion=f"--devices {needed}x{name}",
        )
    return available[:needed]
