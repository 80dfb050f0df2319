"""``stagecraft lint``."""

from __future__ import annotations

import sys

import click


@click.command(short_help="Would Kubeflow Pipelines take this compiled file?")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one object as the last line.")
def lint(files: tuple[str, ...], as_json: bool) -> None:
    """Would the open-source Kubeflow Pipelines backend take these compiled files?

    Says what it would refuse when the file is uploaded, what when a run is started, what crashes
    a step, and what it drops without a word; of each, where it stands in the file, what to
    change, and the code of the backend that decides it.

    \b
    stagecraft lint pipeline.yaml
    stagecraft lint *.yaml --json

    The rules were ported from the backend's Go code (kubeflow/pipelines, 7b70c7b95, August 2026);
    no live cluster was asked. What a cluster alone knows is not looked at: images, secrets,
    volumes, quotas, permissions.

    Exit code: 0 when all are accepted; 1 with findings, or when a file cannot be read.
    """
    try:
        from stagecraft.pipeline.cli.linting import show  # --help needs none of it

        sys.exit(show(files, as_json=as_json))
    except KeyboardInterrupt:
        sys.exit(130)
