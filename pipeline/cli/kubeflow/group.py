"""``stagecraft kubeflow contexts``: named connections, as in kubectl."""

from __future__ import annotations

import pathlib
from typing import Any

import click

from stagecraft.common.errors import UserError
from stagecraft.pipeline.cli.command import Group
from stagecraft.pipeline.cli.kubeflow.connection import context_fields
from stagecraft.pipeline.cli.kubeflow.pipelines import pipelines
from stagecraft.pipeline.cli.kubeflow.runs import runs
from stagecraft.pipeline.cli.kubeflow.schedules import schedule
from stagecraft.pipeline.cli.options import not_empty
from stagecraft.pipeline.cli.terminal import console


@click.group(cls=Group, short_help="Manage named connections.")
def contexts() -> None:
    """Manage contexts: named connections to clusters, with their options.

    The file ~/.config/stagecraft/contexts.yaml (or the one that STAGECRAFT_CONTEXTS names) contains
    the contexts, but no secrets. Tokens and cookies stay in their own files, which each command
    reads again.

    \b
    stagecraft kubeflow contexts set home --endpoint https://kubeflow.example.com/pipeline \\
        --namespace my-profile --cookies-file ~/.kubeflow-cookies
    stagecraft kubeflow contexts use home
    stagecraft kubeflow runs list --context other
    """


@contexts.command("set", short_help="Create or change a context.")
@click.argument("name", callback=not_empty)
@context_fields
def set_(name: str, **fields: Any) -> None:
    """Create the context NAME, or change the fields that you set with options.

    The first context becomes the current one.
    """
    from stagecraft.pipeline.kubeflow.client import connection, contexts as stored

    if stdin := [field for field, value in fields.items() if value == "-"]:
        option = f"--{stdin[0].replace('_', '-')}"
        raise UserError(
            f"{option}: '-' (standard input) is not allowed in a context, which stores paths; use "
            "the path of a file",
            setting=option,
            value="-",
        )
    known = stored.load()
    changes = {field: value for field, value in fields.items() if value is not None}
    for field, value in changes.items():
        if field.endswith("_file") and not value.startswith(("-", "~")):
            changes[field] = str(pathlib.Path(value).absolute())
    before = known.contexts.get(name, stored.Context())
    after = stored.make(before.model_dump() | changes)
    connection.checked(after)
    current = known.current or name
    stored.save(stored.Contexts(current=current, contexts={**known.contexts, name: after}))
    console.say(f"{name}: set." + (" It is the current context." if current == name else ""))


@contexts.command(short_help="Make a context the current one.")
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the current context. Commands use it if no option or variable names another."""
    from stagecraft.pipeline.kubeflow.client import contexts as stored

    known = stored.load()
    known.named(name)
    stored.save(known.model_copy(update={"current": name}))
    console.say(f"{name} is now the current context.")


@contexts.command("list", short_help="List all contexts.")
@click.option("--json", "as_json", is_flag=True, help="Print only one JSON object on stdout.")
def list_(as_json: bool) -> None:
    """List all contexts; a star marks the current one."""
    from stagecraft.pipeline.kubeflow.client import contexts as stored

    known = stored.load()
    if as_json:
        dumped = {
            name: context.model_dump(exclude_defaults=True)
            for name, context in known.contexts.items()
        }
        console.say_json({"current": known.current, "contexts": dumped})
        return
    console.table(
        ("", "NAME", "ENDPOINT", "NAMESPACE"),
        [
            (
                "*" if name == known.current else "",
                name,
                context.endpoint or "(from kubectl)",
                context.namespace or "",
            )
            for name, context in sorted(known.contexts.items())
        ],
    )


@contexts.command(short_help="Delete a context.")
@click.argument("name")
def delete(name: str) -> None:
    """Delete the context NAME, but not the files that it names."""
    from stagecraft.pipeline.kubeflow.client import contexts as stored

    known = stored.load()
    known.named(name)
    rest = {other: context for other, context in known.contexts.items() if other != name}
    current = None if known.current == name else known.current
    stored.save(stored.Contexts(current=current, contexts=rest))
    console.say(f"{name}: deleted." + ("" if current else " No context is current now."))


@click.group(short_help="Upload, start and watch pipelines on a Kubeflow cluster.")
def kubeflow() -> None:
    """Manage pipelines, runs and schedules on open-source Kubeflow Pipelines 2.x.

    \b
    stagecraft compile --set kubeflow.image=registry/stagecraft@sha256:…
    stagecraft kubeflow contexts set home --endpoint https://kubeflow.example.com/pipeline
    stagecraft kubeflow pipelines create quickstart.yaml
    stagecraft kubeflow runs create quickstart -p train_epochs=2 --watch
    stagecraft kubeflow runs logs RUN --step Trainer --follow
    stagecraft kubeflow schedule create quickstart --cron "0 6 * * *"

    Options have priority. Commands take all other connection values from the first source that
    applies: a context (--context or STAGECRAFT_KUBEFLOW_CONTEXT); the environment
    (KF_PIPELINES_ENDPOINT and other variables of kfp, STAGECRAFT_KUBEFLOW_TOKEN,
    STAGECRAFT_KUBEFLOW_COOKIES); the current context; the cluster of the pod that runs the command;
    the cluster of kubectl.

    The tests use a local server with the published API (v2beta1). The commands also ran against a
    real server of version 2.17. Exit codes: 0; 1 if the command or the run failed; 2 for an invalid
    command line; 130 after Ctrl-C.
    """


kubeflow.add_command(pipelines)
kubeflow.add_command(runs)
kubeflow.add_command(schedule)
kubeflow.add_command(contexts)
