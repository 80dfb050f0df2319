"""What ``stagecraft report`` does: find the run, write its page, say where it is."""

from __future__ import annotations

import pathlib
import webbrowser
from typing import NamedTuple

from stagecraft.components.report.artifacts import REPORT
from stagecraft.components.report.pages import quality_text
from stagecraft.pipeline.cli import console
from stagecraft.pipeline.cli.past import short_id
from stagecraft.pipeline.history import runs
from stagecraft.schemas.errors import UserError


class Request(NamedTuple):
    """The command line, as given."""

    run: str
    output: pathlib.Path | None
    opens: bool
    as_json: bool


def write(request: Request) -> int:
    """Writes the page; the command's exit code."""
    try:
        run = runs.named(request.run)  # at once; what follows imports TensorFlow
        from stagecraft.components.report.pages import page
        from stagecraft.pipeline.history import report

        path = request.output or run.output / _name(run)
        data = report.report_data(run)
        text = page.render(data)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"{path}: cannot be written ({error.strerror}); give another --output"
            ) from None
    except UserError as error:
        if request.as_json:
            console.say_json({"error": str(error)})
        console.error(str(error))
        return 1
    console.rows(
        [("run", data.run_id), ("verdict", quality_text.verdict(data)), ("report", str(path))],
        stderr=request.as_json,
    )
    if request.as_json:
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
    if request.opens:
        webbrowser.open(path.absolute().as_uri())
    return 0


def _name(run: runs.Found) -> str:
    """The newest run's page has the plain name; an older one's must not take its place."""
    if run == runs.choose(run.output):
        return REPORT
    stem, dot, suffix = REPORT.partition(".")
    return f"{stem}-{short_id(run.id).replace(':', '')}{dot}{suffix}"
