"""``stagecraft lint``."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import click

from stagecraft.common.errors import UserError
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console

if TYPE_CHECKING:
    from stagecraft.pipeline.kubeflow.linter import Finding


@click.command(
    cls=Command, quiet=False, short_help="Check whether Kubeflow Pipelines accepts compiled files."
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options.json_option
def lint(files: tuple[str, ...], as_json: bool) -> int:
    """Check whether the open-source Kubeflow Pipelines backend accepts compiled files.

    The command reports what the backend refuses at the upload or at the start of a run, what
    crashes a step, and what the backend silently ignores. Each finding names the place in the file,
    the change to make, and the backend code that decides this.

    \b
    stagecraft lint pipeline.yaml
    stagecraft lint *.yaml --json

    The rules come from the Go code of the backend (kubeflow/pipelines, 7b70c7b95, August 2026)
    and agree with its verdicts on 375 pipelines. The check does not cover what only a
    cluster knows: container images, secrets, volumes, quotas, permissions.

    Exit code: 0 if the backend accepts all files; 1 with findings, or if a file cannot be read.
    """
    from stagecraft.pipeline.kubeflow.linter import check

    texts = {file: _read(file) for file in files}
    findings = {file: check(text) for file, text in texts.items()}
    for file, of_file in findings.items():
        for finding in of_file:
            paragraph = (
                f"{file}: {finding.location} ({finding.rule})\n"
                f"  {finding.problem}\n"
                f"  {finding.remedy}\n"
                f"  {finding.source}\n"
            )
            console.say(paragraph, stderr=as_json)
    console.say(_summary(findings), stderr=as_json)
    accepted = not any(findings.values())
    if as_json:
        dicts = {file: [each.json() for each in of_file] for file, of_file in findings.items()}
        console.say_json({"accepted": accepted, "files": dicts})
    return 0 if accepted else 1


def _read(file: str) -> str:
    try:
        return pathlib.Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{file}: cannot be read ({error.strerror}); name a compiled pipeline, such as "
            "pipeline.yaml",
            file=file,
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file}: is not a text file; name the compiled YAML file, not an archive of it",
            file=file,
        ) from error


def _summary(findings: dict[str, list[Finding]]) -> str:
    total = sum(map(len, findings.values()))
    if not total:
        return f"accepted: {', '.join(findings)}"
    refused = [file for file, of_file in findings.items() if of_file]
    return f"{total} finding{'s' if total > 1 else ''} in {', '.join(refused)}"
