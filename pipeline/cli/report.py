"""``stagecraft report``."""

from __future__ import annotations

import pathlib
import sys

import click

from stagecraft.pipeline.cli.options import not_empty
from stagecraft.pipeline.cli.quiet import quiet


@click.command(short_help="Write a page about a run that is over.")
@click.argument("run", callback=not_empty)
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    metavar="FILE",
    help="Where to. Default: report.html in the run's folder, report-ID.html of an older run.",
)
@click.option("--open", "opens", is_flag=True, help="Show it in the browser.")
@click.option("--json", "as_json", is_flag=True, help="Print one object as the last line.")
def report(
    run: str,
    output: pathlib.Path | None,
    opens: bool,
    as_json: bool,
) -> None:
    """Write a page about a run: how good the model is, how it learned, on which devices.

    RUN is the folder that `stagecraft run --output` wrote, such as runs/quickstart, for its newest
    run; FOLDER@ID; or an ID, of a run below runs. An ID may be cut short as `stagecraft history`
    does. A pipeline with report.enabled writes the page by itself, among its artifacts; this one
    writes it anew, and also of runs that failed or have none. It is one file, which asks nothing of
    any network.

    \b
    stagecraft report runs/quickstart --open
    stagecraft report runs/first@2026-01-02T03:04:05 --output first.html

    Exit code: 0; 1 when there is no such run, or more than one.
    """
    quiet()
    try:
        from stagecraft.pipeline.cli.reporting import Request, write  # --help needs none of it

        sys.exit(write(Request(run, output, opens, as_json)))
    except KeyboardInterrupt:
        sys.exit(130)
