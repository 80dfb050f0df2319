"""``stagecraft kubeflow runs``."""

from __future__ import annotations

import click

from stagecraft.pipeline.cli.kubeflow.connecting import Given, act, connection_options
from stagecraft.pipeline.cli.options import not_empty

_run = click.argument("run")


@click.group(short_help="Start runs, watch them, read their logs, stop them.")
def runs() -> None:
    """Runs of uploaded pipelines. RUN is a run's ID."""


@runs.command(short_help="Start a run.")
@click.argument("pipeline")
@click.option(
    "--version",
    callback=not_empty,
    help="Name or ID of the pipeline's version. Default: the newest.",
)
@click.option(
    "--parameter",
    "-p",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the pipeline. May be repeated; others keep their defaults.",
)
@click.option(
    "--name", callback=not_empty, help="Of the run. Default: the version's, with the time."
)
@click.option(
    "--once", is_flag=True, help="Take the run of that --name and version, unless it failed."
)
@click.option(
    "--experiment",
    callback=not_empty,
    help="That the run belongs to. Default: the pipeline's name.",
)
@click.option("--pipeline-root", metavar="ADDRESS", help="Of outputs. Default: the pipeline's.")
@click.option("--service-account", help="Of the run's pods. Default: the server's choice.")
@click.option("--watch", is_flag=True, help="Show it until it is over.")
@connection_options
def create(
    given: Given,
    pipeline: str,
    version: str | None,
    parameters: tuple[str, ...],
    name: str | None,
    once: bool,
    experiment: str | None,
    pipeline_root: str | None,
    service_account: str | None,
    watch: bool,
) -> None:
    """Start a run of PIPELINE (name or ID).

    \b
    stagecraft kubeflow runs create quickstart --watch
    stagecraft kubeflow runs create quickstart -p train_epochs=20 -p train_seed=1
    stagecraft kubeflow runs create quickstart --name nightly-2026-11-22 --once
    """
    from stagecraft.pipeline.cli.kubeflow import showing_runs

    request = showing_runs.Start(
        pipeline=pipeline,
        version=version,
        parameters=parameters,
        name=name,
        once=once,
        experiment=experiment,
        pipeline_root=pipeline_root,
        service_account=service_account,
        watch=watch,
    )
    act(given, lambda api: showing_runs.create(api, request, as_json=given.as_json))


@runs.command("list", short_help="Runs, newest first.")
@click.option(
    "--experiment",
    callback=not_empty,
    help="Only of this one; runs are in one named after their pipeline.",
)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@connection_options
def list_(given: Given, experiment: str | None, limit: int) -> None:
    """Runs, newest first."""
    from stagecraft.pipeline.cli.kubeflow import showing_runs

    act(given, lambda api: showing_runs.show_list(api, experiment, limit, as_json=given.as_json))


@runs.command(short_help="One run: steps, parameters, what failed.")
@_run
@connection_options
def show(given: Given, run: str) -> None:
    """State of RUN and of its steps, with its parameters."""
    from stagecraft.pipeline.cli.kubeflow import showing_runs

    act(given, lambda api: showing_runs.show(api, run, as_json=given.as_json))


@runs.command(short_help="Show a run until it is over.")
@_run
@connection_options
def watch(given: Given, run: str) -> None:
    """Show RUN until it is over: step by step, as 'stagecraft run' shows a local one.

    Ctrl-C ends the watching; the run goes on. Exit code: 0 when it succeeded; 1 when not; 130
    after Ctrl-C.
    """
    from stagecraft.pipeline.cli.kubeflow import showing_runs

    act(given, lambda api: showing_runs.watch(api, run, as_json=given.as_json))


@runs.command(short_help="What a run's steps have printed.")
@_run
@click.option("--step", help="Of this step alone, as Trainer; see 'show'.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run is over.")
@click.option("--tail", type=click.IntRange(min=0), help="How many lines of each log's end.")
@connection_options
def logs(given: Given, run: str, step: str | None, follow: bool, tail: int | None) -> None:
    """What the steps of RUN have printed, each line with its step in front.

    Kubeflow Pipelines has no call for logs: they are read from the run's pods, through the
    Kubernetes API, with kubectl's configuration. It takes a role that may list pods and read
    their logs (manifests/base/logs-access.yaml). Pods of a run that is over are deleted after a
    time. With --json, each line is an object.

    \b
    stagecraft kubeflow runs logs 5a3c… --step Trainer --follow
    """
    from stagecraft.pipeline.cli.kubeflow import showing_runs

    act(
        given,
        lambda api: showing_runs.logs(
            api, run, step, follow=follow, tail=tail, as_json=given.as_json
        ),
    )


@runs.command(short_help="Stop a run.")
@_run
@connection_options
def terminate(given: Given, run: str) -> None:
    """Stop RUN. One that is over stays as it is."""
    from stagecraft.pipeline.cli.kubeflow import showing_runs

    act(given, lambda api: showing_runs.terminate(api, run, as_json=given.as_json))


@runs.command(short_help="Delete a run.")
@_run
@connection_options
def delete(given: Given, run: str) -> None:
    """Delete RUN, and stop it if it is not over. What it wrote to the store stays.

    If there is none, nothing happens, and that is said.
    """
    from stagecraft.pipeline.cli.kubeflow import showing_runs

    act(given, lambda api: showing_runs.delete(api, run, as_json=given.as_json))
