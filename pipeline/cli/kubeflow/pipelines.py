"""``stagecraft kubeflow pipelines``."""

from __future__ import annotations

import pathlib

import click

from stagecraft.pipeline.cli.kubeflow.connecting import Given, act, connection_options
from stagecraft.pipeline.cli.options import not_empty

_file = click.argument("file", type=click.Path(path_type=pathlib.Path))
_name = click.option(
    "--name", callback=not_empty, help="Of the pipeline. Default: the one in FILE."
)


@click.group(short_help="Upload pipelines, list and delete them.")
def pipelines() -> None:
    """Pipelines that are uploaded to Kubeflow, and their versions."""


@pipelines.command(short_help="Upload a new pipeline.")
@_file
@_name
@connection_options
def create(given: Given, file: pathlib.Path, name: str | None) -> None:
    """Upload FILE, which 'stagecraft compile' wrote, as a new pipeline.

    If it is there already, and the same, nothing happens; if it is another one, that is an error.
    What Kubeflow Pipelines would not run (see 'stagecraft lint') is not uploaded.

    \b
    stagecraft kubeflow pipelines create quickstart.yaml
    stagecraft kubeflow pipelines create quickstart.yaml --name team-a-quickstart
    """
    from stagecraft.pipeline.cli.kubeflow import showing_pipelines

    act(given, lambda api: showing_pipelines.create(api, file, name, as_json=given.as_json))


@pipelines.command(short_help="Add a version to a pipeline.")
@_file
@_name
@click.option(
    "--version",
    callback=not_empty,
    help="Name of the version. Default: the pipeline's, with the time.",
)
@connection_options
def update(given: Given, file: pathlib.Path, name: str | None, version: str | None) -> None:
    """Upload FILE as a new version of a pipeline that is there.

    If the newest version is the same, nothing happens.

    \b
    stagecraft kubeflow pipelines update quickstart.yaml --version 2.0
    """
    from stagecraft.pipeline.cli.kubeflow import showing_pipelines

    act(
        given, lambda api: showing_pipelines.update(api, file, name, version, as_json=given.as_json)
    )


@pipelines.command("list", short_help="All pipelines.")
@connection_options
def list_(given: Given) -> None:
    """All pipelines: yours, and those that all users share."""
    from stagecraft.pipeline.cli.kubeflow import showing_pipelines

    act(given, lambda api: showing_pipelines.show_list(api, as_json=given.as_json))


@pipelines.command(short_help="One pipeline: versions and parameters.")
@click.argument("pipeline")
@connection_options
def show(given: Given, pipeline: str) -> None:
    """Versions of PIPELINE (name or ID), and the parameters of the newest one."""
    from stagecraft.pipeline.cli.kubeflow import showing_pipelines

    act(given, lambda api: showing_pipelines.show(api, pipeline, as_json=given.as_json))


@pipelines.command(short_help="Delete a pipeline and its versions.")
@click.argument("pipeline")
@connection_options
def delete(given: Given, pipeline: str) -> None:
    """Delete PIPELINE (name or ID) with all its versions. Its runs stay.

    If there is none, nothing happens, and that is said.
    """
    from stagecraft.pipeline.cli.kubeflow import showing_pipelines

    act(given, lambda api: showing_pipelines.delete(api, pipeline, as_json=given.as_json))
