"""``stagecraft emulate``."""

from __future__ import annotations

import pathlib
import sys

import click

from stagecraft.pipeline.cli.quiet import quiet


@click.command(short_help="Run a compiled pipeline here, as Kubeflow would.")
@click.argument("file", type=click.Path(path_type=pathlib.Path))
@click.option(
    "--parameter",
    "-p",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the pipeline, as in the form that starts a run. May be repeated.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    help="Folder of the emulated object store, of logs, and of what a later run takes from the "
    "cache. Default: runs/emulated/NAME, after the pipeline.",
)
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Steps at a time, where the graph allows it.",
)
@click.option("--json", "as_json", is_flag=True, help="Nothing but the summary on stdout.")
def emulate(
    file: pathlib.Path,
    parameters: tuple[str, ...],
    output: pathlib.Path | None,
    parallel: int,
    as_json: bool,
) -> None:
    """Run a compiled pipeline on this machine, as Kubeflow Pipelines would.

    Takes FILE alone and runs each step's command as a process of its own, in this Python
    environment, under the launcher's contract: inputs without their types, object-store
    addresses with a folder in the store's place, copies down before and up after, retries, time
    limits, and the cache with the backend's own key.

    \b
    stagecraft compile && stagecraft emulate quickstart.yaml
    stagecraft emulate quickstart.yaml -p train_epochs=2 -p train_seed=1

    Not emulated: Kubernetes (images, resources, volumes, secrets, node selectors, tolerations; a
    step sees all of this machine), conditions, importers' downloads, several users. The contract
    is that of the published code; no live cluster was compared with.

    The last line is JSON: pushed, blessed, steps. Exit code: 0; 1 when a step failed; 130 after
    Ctrl-C.
    """
    quiet()
    from stagecraft.pipeline.cli.emulating import Request, run  # --help needs none of it

    request = Request(
        file=file, parameters=parameters, output=output, parallel=parallel, as_json=as_json
    )
    sys.exit(run(request))
