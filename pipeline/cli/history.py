"""``stagecraft history``."""

from __future__ import annotations

import pathlib
import sys

import click

from stagecraft.pipeline.cli.quiet import quiet


@click.command(short_help="List past runs, and what came of them.")
@click.argument("folders", nargs=-1, type=click.Path(path_type=pathlib.Path), metavar="[FOLDER]...")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="How many are shown, the newest first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object as the last line.")
def history(folders: tuple[pathlib.Path, ...], limit: int, as_json: bool) -> None:
    """List past runs of this machine: data, topology, time, accuracy, blessed, pushed, settings.

    FOLDER is one that `stagecraft run --output` wrote, or one that holds such folders; without
    it, runs. Newest first. SETTINGS has those that the preset of the pipeline's name has
    otherwise, or the defaults where there is no such preset. A run that is going on is not
    disturbed.

    \b
    stagecraft history
    stagecraft history runs/quickstart --limit 5

    A run is `done`; `running`; `failed`, or `stopped` before its end (by Ctrl-C, or with the
    machine), in a component that is named.

    Exit code: 0; 1 when there is no run.
    """
    quiet()
    try:
        from stagecraft.pipeline.cli.listing import show  # --help needs none of it

        sys.exit(show(folders, limit=limit, as_json=as_json))
    except KeyboardInterrupt:
        sys.exit(130)
