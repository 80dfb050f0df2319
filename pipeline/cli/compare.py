"""``stagecraft compare``."""

from __future__ import annotations

import sys

import click

from stagecraft.pipeline.cli.options import not_empty
from stagecraft.pipeline.cli.quiet import quiet


@click.command(short_help="Show two past runs side by side.")
@click.argument("a", callback=not_empty)
@click.argument("b", required=False, callback=not_empty)
@click.option("--json", "as_json", is_flag=True, help="Print one object as the last line.")
def compare(a: str, b: str | None, as_json: bool) -> None:
    """Show what two runs have otherwise: settings, code, data; and metrics and seconds of both.

    A and B are runs of this machine, each named by the folder that `stagecraft run --output` wrote,
    for its newest run; FOLDER@ID; or an ID, of a run below runs. An ID may be cut short as
    `stagecraft history` does. Without B, A is compared with the run before it in its folder.

    \b
    stagecraft compare runs/quickstart
    stagecraft compare runs/first runs/second
    stagecraft compare runs/first@2026-01-02T03:04:05 2026-01-03

    Exit code: 0; 1 when there is no such run, or more than one.
    """
    quiet()
    try:
        from stagecraft.pipeline.cli.comparing import show  # --help needs none of it

        sys.exit(show(a, b, as_json=as_json))
    except KeyboardInterrupt:
        sys.exit(130)
