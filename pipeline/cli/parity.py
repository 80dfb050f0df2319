"""``stagecraft parity``."""

from __future__ import annotations

import sys

import click

from stagecraft.pipeline.cli.options import data_option, settings_options


@click.command(short_help="Prove that topologies compute what one device computes.")
@settings_options
@data_option
@click.option(
    "--topologies",
    default="all",
    show_default=True,
    metavar="NAME,NAME…|all",
    help="Which ones; see --list.",
)
@click.option("--list", "as_list", is_flag=True, help="List the names, and compare nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one object as the last line.")
def parity(
    config: str,
    overrides: tuple[str, ...],
    data: str | None,
    topologies: str,
    as_list: bool,
    as_json: bool,
) -> None:
    """Prove that topologies compute what one device computes.

    Each topology trains some steps in processes of its own, on logical devices of this machine's
    CPU, and so does one device, with the same model, pictures, seed and global batch. Compared are
    gradients from equal weights, the weights after a trajectory in float64, and the bits of all
    replicas; weights after a trajectory in float32, where training amplifies rounding, are told.

    \b
    stagecraft parity --list
    stagecraft parity --topologies mirrored-2,stages-3
    stagecraft parity --config cifar10 --data ~/cifar-10-binary.tar.gz
    stagecraft parity --set parallel.strategy=grid --set parallel.stages=2 \\
        --set parallel.virtual_devices=2 --topologies configured

    parity.steps, parity.batch_size and parity.timeout_seconds say how. Exit code: 0 when all are
    equal; 1 when one differs or does not run; 130 after Ctrl-C.
    """
    try:
        from stagecraft.pipeline.cli.proving import Request, prove  # --help needs none of it

        request = Request(
            config=config,
            overrides=overrides,
            data=data,
            topologies=topologies,
            as_list=as_list,
            as_json=as_json,
        )
        sys.exit(prove(request))
    except KeyboardInterrupt:
        sys.exit(130)
