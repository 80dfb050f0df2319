"""``stagecraft report``."""

from __future__ import annotations

import pathlib
import webbrowser
from typing import TYPE_CHECKING

import click

from stagecraft.common import garbage_collection
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console

if TYPE_CHECKING:
    from stagecraft.pipeline.history import runs


@click.command(cls=Command, short_help="Write the report of a past run.")
@click.argument("run", callback=options.not_empty)
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    metavar="FILE",
    help="The file to write. Default: report.html in the run's folder; for an older run, "
    "report-ID.html.",
)
@click.option("--open", "opens", is_flag=True, help="Open the report in the browser.")
@options.json_option
def report(run: str, output: pathlib.Path | None, opens: bool, as_json: bool) -> None:
    """Write the report of a run: model quality, learning curves, devices, lineage.

    To name the newest run in an output folder, give the folder as RUN, such as runs/quickstart. To
    name another run, give FOLDER@ID, or only the ID if the run is below runs/. You can shorten an
    ID, as in the output of `stagecraft history`.

    With report.enabled, the pipeline writes the report as an artifact. This command writes the
    report again. The command also works for a run that failed or that has no report. The report is
    one HTML file that needs no network.

    \b
    stagecraft report runs/quickstart --open
    stagecraft report runs/first@2026-01-02T03:04:05 --output first.html

    Exit code: 0; 1 if no run, or more than one, has this ID.
    """
    from stagecraft.pipeline.history import runs

    recorded = runs.find(run)
    with garbage_collection.paused(freeze=True):  # of TensorFlow
        from stagecraft.components.report.pages import page, sentences
        from stagecraft.pipeline.history.report import report_data
        from stagecraft.pipeline.local.layout import OutputError

    path = output or recorded.output / _file_name(recorded)
    data = report_data(recorded)
    text = page.render(data)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(path, error) from None
    console.fields(
        [("run", data.run_id), ("verdict", sentences.verdict(data)), ("report", str(path))],
        stderr=as_json,
    )
    if as_json:
        quality = data.quality
        console.say_json(
            {
                "run_id": data.run_id,
                "report": str(path),
                "metrics": quality.metrics if quality else {},
                "blessed": bool(quality and quality.blessed),
                "pushed": data.pushed_to,
            }
        )
    if opens:
        webbrowser.open(path.absolute().as_uri())


def _file_name(run: runs.RecordedRun) -> str:
    """The plain name for the newest run, so that no older run's report replaces it."""
    from stagecraft.components.report.artifacts import REPORT
    from stagecraft.pipeline.cli.terminal.past_run_text import short_id
    from stagecraft.pipeline.history import runs

    if run == runs.choose(run.output):
        return REPORT
    stem, dot, suffix = REPORT.partition(".")
    return f"{stem}-{short_id(run.id).replace(':', '')}{dot}{suffix}"
