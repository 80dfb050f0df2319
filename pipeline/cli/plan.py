"""``stagecraft plan``."""

from __future__ import annotations

import sys

import click

from stagecraft.pipeline.cli.options import settings_options
from stagecraft.pipeline.cli.quiet import quiet
from stagecraft.trainer_module.planning.accelerators import NETWORK_GBIT


@click.command(short_help="Predict what a topology costs, without training.")
@settings_options
@click.option(
    "--devices",
    metavar="NxNAME",
    help="Plan for devices that are not here, such as 4xA100-40GB, by their published figures: as "
    "many for each worker.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Time the model's parts on this machine's first device; the same as --set "
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
@click.option("--json", "as_json", is_flag=True, help="Print one object as the last line.")
def plan(
    config: str,
    overrides: tuple[str, ...],
    devices: str | None,
    measure: bool,
    network: float,
    as_json: bool,
) -> None:
    """Predict what a topology costs, without training.

    Where the model is cut, what each stage holds and its part of the time; when which microbatch
    is in which stage; how long devices wait, how much faster than one device it is and than the
    same stages one after the other, what limits it, and what would be faster.

    \b
    stagecraft plan --set parallel.strategy=grid --set parallel.stages=2 \\
        --set parallel.microbatches=4 --set parallel.virtual_devices=2
    stagecraft plan --config my.yaml --devices 4xA100-40GB

    Without --measure and --devices, times are floating-point operations: they tell how stages
    compare, and nothing of copies between devices and hosts. Each worker counts as a host.
    Exit code: 0; 1 when it cannot be.
    """
    quiet()
    try:
        from stagecraft.pipeline.cli.planning import Request, show  # --help needs none of it

        request = Request(
            config=config,
            overrides=overrides,
            devices=devices,
            measure=measure,
            network_gbit=network,
            as_json=as_json,
        )
        sys.exit(show(request))
    except KeyboardInterrupt:
        sys.exit(130)
