"""``stagecraft kubeflow pipelines``."""

from __future__ import annotations

import pathlib
import shlex
from typing import TYPE_CHECKING, Any

import click

from stagecraft.pipeline.cli.command import Group
from stagecraft.pipeline.cli.kubeflow.connection import connection_options, links
from stagecraft.pipeline.cli.options import not_empty
from stagecraft.pipeline.cli.terminal import console
from stagecraft.pipeline.cli.terminal.wording import day, optional_time

if TYPE_CHECKING:
    from stagecraft.pipeline.kubeflow.client.api import Api
    from stagecraft.pipeline.kubeflow.client.objects import Pipeline, Version
    from stagecraft.pipeline.kubeflow.client.pipelines import Uploaded

_file = click.argument("file", type=click.Path(path_type=pathlib.Path))
_name = click.option(
    "--name", callback=not_empty, help="The name of the pipeline. Default: the name in FILE."
)


@click.group(cls=Group, short_help="Upload, list and delete pipelines.")
def pipelines() -> None:
    """Manage the pipelines on Kubeflow, and their versions."""


@pipelines.command(short_help="Upload a new pipeline.")
@_file
@_name
@connection_options
def create(api: Api, file: pathlib.Path, name: str | None, as_json: bool) -> None:
    """Upload FILE, which 'stagecraft compile' wrote, as a new pipeline.

    If the same pipeline exists, nothing happens. If a different pipeline has this name, the command
    fails. It uploads only files that 'stagecraft lint' accepts.

    \b
    stagecraft kubeflow pipelines create quickstart.yaml
    stagecraft kubeflow pipelines create quickstart.yaml --name team-a-quickstart
    """
    from stagecraft.pipeline.kubeflow.client import pipelines as of_server

    uploaded = of_server.create(api, file, name)
    state = "created" if uploaded.changed else "exists already"
    _show_uploaded(api, uploaded, state, as_json=as_json)


@pipelines.command(short_help="Add a version to a pipeline.")
@_file
@_name
@click.option(
    "--version",
    callback=not_empty,
    help="The name of the version. Default: the name of the pipeline, with the time.",
)
@connection_options
def update(
    api: Api, file: pathlib.Path, name: str | None, version: str | None, as_json: bool
) -> None:
    """Upload FILE as a new version of an existing pipeline.

    If the newest version is the same, nothing happens.

    \b
    stagecraft kubeflow pipelines update quickstart.yaml --version 2.0
    """
    from stagecraft.pipeline.kubeflow.client import pipelines as of_server

    uploaded = of_server.update(api, file, name, version)
    state = "updated" if uploaded.changed else "unchanged"
    _show_uploaded(api, uploaded, state, as_json=as_json)


@pipelines.command("list", short_help="List all pipelines.")
@connection_options
def list_(api: Api, as_json: bool) -> None:
    """List all pipelines: your own, and those that all users share."""
    from stagecraft.pipeline.kubeflow.client import pipelines as of_server

    listed = of_server.every(api)
    if as_json:
        console.say_json({"pipelines": [_pipeline(api, each) for each in listed]})
    elif listed:
        console.table(
            ("NAME", "CREATED", "ID"), [(each.name, day(each.created), each.id) for each in listed]
        )
    else:
        console.say("No pipelines.")


@pipelines.command(short_help="Show the versions and parameters of a pipeline.")
@click.argument("pipeline")
@connection_options
def show(api: Api, pipeline: str, as_json: bool) -> None:
    """Show the versions of PIPELINE (name or ID), and the parameters of the newest version."""
    from stagecraft.pipeline.kubeflow.client import pipelines as of_server
    from stagecraft.pipeline.kubeflow.document import WORDS

    shown = of_server.get(api, pipeline)
    versions = of_server.versions(api, shown)
    inputs = versions[0].document.parameters if versions else {}
    if as_json:
        console.say_json(
            {
                **_pipeline(api, shown),
                "versions": [_version(each) for each in versions],
                "parameters": inputs,
            }
        )
        return
    address = links(api, f"pipelines/details/{shown.id}")
    console.fields([("pipeline", shown.name), ("ID", shown.id), *address])
    if shown.description:
        console.say("\n" + shown.description)
    if versions:
        console.say("")
        lines = [(each.name, day(each.created), each.id) for each in versions]
        console.table(("VERSION", "CREATED", "ID"), lines)
    if inputs:
        console.say("")
        console.table(
            ("PARAMETER", "TYPE", "DEFAULT"),
            [
                (key, WORDS[definition["parameterType"]], str(definition.get("defaultValue", "")))
                for key, definition in inputs.items()
            ],
        )


@pipelines.command(short_help="Delete a pipeline and its versions.")
@click.argument("pipeline")
@connection_options
def delete(api: Api, pipeline: str, as_json: bool) -> None:
    """Delete PIPELINE (name or ID) with all its versions, but not its runs.

    If there is no such pipeline, the command says so and exits with 0.
    """
    from stagecraft.pipeline.kubeflow.client import pipelines as of_server

    existing = of_server.find(api, pipeline, shared=False)
    versions = of_server.delete(api, existing) if existing else []
    if as_json:
        names = [each.name for each in versions]
        console.say_json({"deleted": existing is not None, "versions": names})
    elif existing is None:
        console.say(f"{pipeline}: no such pipeline; nothing to delete.")
    else:
        console.say(f"{existing.name}: deleted, with {len(versions)} version(s).")


def _show_uploaded(api: Api, uploaded: Uploaded, state: str, *, as_json: bool) -> None:
    pipeline, version = uploaded.pipeline, uploaded.version
    if as_json:
        console.say_json(
            {
                "changed": uploaded.changed,
                "pipeline": _pipeline(api, pipeline),
                "version": _version(version),
            }
        )
        return
    name = shlex.quote(pipeline.name)
    console.fields(
        [
            ("pipeline", f"{pipeline.name}, {state}"),
            ("version", version.name),
            ("ID", pipeline.id),
            *links(api, f"pipelines/details/{pipeline.id}"),
            ("start a run", f"stagecraft kubeflow runs create {name} --watch"),
        ]
    )


def _pipeline(api: Api, pipeline: Pipeline) -> dict[str, Any]:
    return {
        "id": pipeline.id,
        "name": pipeline.name,
        "description": pipeline.description,
        "created": optional_time(pipeline.created),
        "link": api.link(f"pipelines/details/{pipeline.id}"),
    }


def _version(version: Version) -> dict[str, Any]:
    return {"id": version.id, "name": version.name, "created": optional_time(version.created)}
