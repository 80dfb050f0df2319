"""``stagecraft kubeflow contexts``: named connections, as kubectl has them."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from stagecraft.pipeline.cli.kubeflow.connecting import context_fields
from stagecraft.pipeline.cli.options import not_empty


@click.group(short_help="Named connections, in a file.")
def contexts() -> None:
    """Names for clusters, with all that it takes to reach them.

    They are kept in ~/.config/stagecraft/contexts.yaml (or where STAGECRAFT_CONTEXTS says). No
    secret is in there: tokens and cookies stay in files of their own, read anew each time.

    \b
    stagecraft kubeflow contexts set home --endpoint https://kubeflow.example.com/pipeline \\
        --namespace my-profile --cookies-file ~/.kubeflow-cookies
    stagecraft kubeflow contexts use home
    stagecraft kubeflow runs list --context other
    """


@contexts.command("set", short_help="Make a context, or change one.")
@click.argument("name", callback=not_empty)
@context_fields
def set_(name: str, **fields: Any) -> None:
    """Make the context NAME, or change what is given of it. The first one becomes the current."""

    def change() -> None:
        from stagecraft.pipeline.cli import console
        from stagecraft.pipeline.kubeflow.client import connection
        from stagecraft.pipeline.kubeflow.client import contexts as kept
        from stagecraft.schemas.errors import UserError

        if "-" in fields.values():
            raise UserError("A context can name files only, and no standard input.")
        known = kept.load()
        given = {
            field: _from_everywhere(value) if field.endswith("_file") else value
            for field, value in fields.items()
            if value is not None
        }
        before = known.contexts.get(name, kept.Context())
        after = kept.make(before.model_dump() | given)
        connection.checked(after)
        current = known.current or name
        kept.save(kept.Contexts(current=current, contexts={**known.contexts, name: after}))
        console.say(f"{name}: set." + (" It is the current context." if current == name else ""))

    _do(change)


@contexts.command(short_help="Make a context the current one.")
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the context that counts when nothing else is given."""

    def change() -> None:
        from stagecraft.pipeline.cli import console
        from stagecraft.pipeline.kubeflow.client import contexts as kept

        known = kept.load()
        known.named(name)
        kept.save(known.model_copy(update={"current": name}))
        console.say(f"{name}: is the current context now.")

    _do(change)


@contexts.command("list", short_help="All contexts.")
@click.option("--json", "as_json", is_flag=True, help="One object on stdout, no more.")
def list_(as_json: bool) -> None:
    """All contexts; the current one has a star."""

    def show() -> None:
        from stagecraft.pipeline.cli import console
        from stagecraft.pipeline.kubeflow.client import contexts as kept

        known = kept.load()
        if as_json:
            given = {
                name: context.model_dump(exclude_defaults=True)
                for name, context in known.contexts.items()
            }
            console.say_json({"current": known.current, "contexts": given})
            return
        console.columns(
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

    _do(show, as_json=as_json)


@contexts.command(short_help="Delete a context.")
@click.argument("name")
def delete(name: str) -> None:
    """Delete the context NAME. The files that it names stay."""

    def change() -> None:
        from stagecraft.pipeline.cli import console
        from stagecraft.pipeline.kubeflow.client import contexts as kept

        known = kept.load()
        known.named(name)
        rest = {other: context for other, context in known.contexts.items() if other != name}
        current = None if known.current == name else known.current
        kept.save(kept.Contexts(current=current, contexts=rest))
        console.say(f"{name}: deleted." + ("" if current else " There is no current context now."))

    _do(change)


def _from_everywhere(file: str) -> str:
    return file if file.startswith(("-", "~")) else str(pathlib.Path(file).absolute())


def _do(action: Callable[[], None], *, as_json: bool = False) -> NoReturn:
    from stagecraft.pipeline.cli import console
    from stagecraft.schemas.errors import UserError

    try:
        action()
    except UserError as error:
        if as_json:
            console.say_json({"error": str(error)})
        console.error(str(error))
        sys.exit(1)
    sys.exit(0)
