"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stagecraft.schemas.errors import UserError

if TYPE_CHECKING:
    from stagecraft.pipeline.settings.overrides import Override

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_CONFIG = "quickstart"


def settings_options(command: Command) -> Command:
    """``--config`` and ``--set``: arguments ``config`` and ``overrides``."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change one setting, such as train.epochs=20. May be repeated; the last one counts.",
    )(command)
    return click.option(
        "--config",
        default=DEFAULT_CONFIG,
        show_default=True,
        metavar="NAME|FILE",
        help="A preset (quickstart, cifar10) or a YAML file of settings.",
    )(command)


def data_option(command: Command) -> Command:
    """``--data``: argument ``data``."""
    return click.option(
        "--data",
        metavar="PATH|sample|download",
        help="What to read: an archive or folder in CIFAR's layout (a path, or a gs://, s3:// or "
        "minio:// address), the generated sample, or the published archive. Default: the config's "
        "data.source.",
    )(command)


def data_override(data: str | None) -> tuple[Override, ...]:
    """What ``--data`` stands for; a path that looks like a number stays a path."""
    from stagecraft.pipeline.settings.overrides import Override  # --help needs none of it

    return () if data is None else (Override.option("--data", "data.source", data),)


def not_empty(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuses an empty text, which a variable that is not set leaves."""
    if value == "":
        raise click.BadParameter("is empty.", context, parameter)
    return value


def name_values(given: tuple[str, ...]) -> dict[str, str]:
    """What ``--parameter`` was given.

    Raises:
        UserError: one has no ``=``.
    """
    values = {}
    for parameter in given:
        name, equals, value = parameter.partition("=")
        if not equals or not name:
            raise UserError(f"--parameter {parameter}: expected NAME=VALUE, as train_steps=100.")
        values[name] = value
    return values
