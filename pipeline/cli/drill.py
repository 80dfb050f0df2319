"""``stagecraft drill``."""

from __future__ import annotations

import sys

import click

from stagecraft.pipeline.cli.options import data_option, settings_options
from stagecraft.pipeline.cli.quiet import quiet


@click.command(short_help="Kill, freeze and starve trainings, and see what comes of it.")
@settings_options
@data_option
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="NAME",
    help="Which one; may be repeated. Default: all; see --list.",
)
@click.option("--list", "as_list", is_flag=True, help="List the names, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one object as the last line.")
def drill(
    config: str,
    overrides: tuple[str, ...],
    data: str | None,
    scenarios: tuple[str, ...],
    as_list: bool,
    as_json: bool,
) -> None:
    """Kill, freeze and starve trainings, and see what comes of it.

    Each scenario trains a small model in several processes on this machine, injects a fault, and
    looks: how long until it was noticed, how long until the training was past it, how many steps
    were done again, and whether the weights at the end are those of a training that nothing
    happened to, bit for bit. Nothing of your runs is touched.

    \b
    stagecraft drill --list
    stagecraft drill --scenario worker-killed --scenario preempted
    stagecraft drill --data ~/cifar-10-binary.tar.gz --set train.model=resnet20

    All of them take about a quarter of an hour on two cores. Exit code: 0 when all went as they
    should; 1 when one did not; 130 after Ctrl-C.
    """
    quiet()
    try:
        from stagecraft.pipeline.cli.drilling import Request, run  # --help needs none of it

        request = Request(
            config=config,
            overrides=overrides,
            data=data,
            scenarios=scenarios,
            as_list=as_list,
            as_json=as_json,
        )
        sys.exit(run(request))
    except KeyboardInterrupt:
        sys.exit(130)
