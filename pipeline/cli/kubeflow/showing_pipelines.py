"""What ``stagecraft kubeflow pipelines`` does and shows."""

from __future__ import annotations

import datetime
import pathlib
import shlex
from typing import Any

from stagecraft.pipeline.cli import console
from stagecraft.pipeline.kubeflow.client import pipelines
from stagecraft.pipeline.kubeflow.client.api import Api
from stagecraft.pipeline.kubeflow.client.objects import Pipeline, Version
from stagecraft.pipeline.kubeflow.client.pipelines import Uploaded
from stagecraft.pipeline.kubeflow.document import WORDS


def create(api: Api, file: pathlib.Path, name: str | None, *, as_json: bool) -> None:
    """Uploads a pipeline."""
    done = pipelines.create(api, file, name)
    _show_uploaded(api, done, "created" if done.changed else "there already", as_json=as_json)


def update(
    api: Api, file: pathlib.Path, name: str | None, version: str | None, *, as_json: bool
) -> None:
    """Uploads a version."""
    done = pipelines.update(api, file, name, version)
    _show_uploaded(api, done, "updated" if done.changed else "unchanged", as_json=as_json)


def show_list(api: Api, *, as_json: bool) -> None:
    """Shows all pipelines."""
    found = pipelines.every(api)
    if as_json:
        console.say_json({"pipelines": [_pipeline(api, one) for one in found]})
    elif found:
        console.columns(
            ("NAME", "CREATED", "ID"), [(one.name, day(one.created), one.id) for one in found]
        )
    else:
        console.say("No pipelines.")


def show(api: Api, name: str, *, as_json: bool) -> None:
    """Shows one pipeline."""
    pipeline = pipelines.get(api, name)
    versions = pipelines.versions(api, pipeline)
    inputs = versions[0].document.parameters if versions else {}
    if as_json:
        console.say_json(
            {
                **_pipeline(api, pipeline),
                "versions": [_version(one) for one in versions],
                "parameters": inputs,
            }
        )
        return
    console.rows(
        [
            ("pipeline", pipeline.name),
            ("ID", pipeline.id),
            *links(api, f"pipelines/details/{pipeline.id}"),
        ]
    )
    if pipeline.description:
        console.say("\n" + pipeline.description)
    if versions:
        console.say("")
        lines = [(one.name, day(one.created), one.id) for one in versions]
        console.columns(("VERSION", "CREATED", "ID"), lines)
    if inputs:
        console.say("")
        console.columns(
            ("PARAMETER", "TYPE", "DEFAULT"),
            [
                (key, WORDS[definition["parameterType"]], str(definition.get("defaultValue", "")))
                for key, definition in inputs.items()
            ],
        )


def delete(api: Api, name: str, *, as_json: bool) -> None:
    """Deletes a pipeline."""
    pipeline = pipelines.find(api, name, shared=False)
    gone = pipelines.delete(api, pipeline) if pipeline else []
    if as_json:
        console.say_json({"deleted": pipeline is not None, "versions": [one.name for one in gone]})
    elif pipeline is None:
        console.say(f"{name}: there is no such pipeline; nothing to delete.")
    else:
        console.say(f"{pipeline.name}: deleted, with {len(gone)} version(s).")


def day(when: datetime.datetime | None) -> str:
    """A point in time for a table, in the zone of whoever reads it."""
    return f"{when.astimezone():%Y-%m-%d %H:%M}" if when else ""


def _show_uploaded(api: Api, done: Uploaded, what: str, *, as_json: bool) -> None:
    if as_json:
        console.say_json(
            {
                "changed": done.changed,
                "pipeline": _pipeline(api, done.pipeline),
                "version": _version(done.version),
            }
        )
        return
    name = shlex.quote(done.pipeline.name)
    console.rows(
        [
            ("pipeline", f"{done.pipeline.name}, {what}"),
            ("version", done.version.name),
            ("ID", done.pipeline.id),
            *links(api, f"pipelines/details/{done.pipeline.id}"),
            ("start a run", f"stagecraft kubeflow runs create {name} --watch"),
        ]
    )


def links(api: Api, path: str) -> list[tuple[str, str]]:
    """A row with the address of a page, if it is known."""
    link = api.link(path)
    return [("see", link)] if link else []


def _pipeline(api: Api, pipeline: Pipeline) -> dict[str, Any]:
    return {
        "id": pipeline.id,
        "name": pipeline.name,
        "description": pipeline.description,
        "created": pipeline.created.isoformat() if pipeline.created else None,
        "link": api.link(f"pipelines/details/{pipeline.id}"),
    }


def _version(version: Version) -> dict[str, Any]:
    return {
        "id": version.id,
        "name": version.name,
        "created": version.created.isoformat() if version.created else None,
    }
