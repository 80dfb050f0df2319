"""Options that several commands have, and what they stand for."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stagecraft.common.errors import UserError
from stagecraft.pipeline.cli.quiet import quiet_imports

if TYPE_CHECKING:
    from stagecraft.pipeline.settings import PipelineSettings
    from stagecraft.pipeline.settings.overrides import Override

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_PROJECT_CONFIG = "settings.yaml"  # as `stagecraft init` writes it
PRESET = "quickstart"


def default_config() -> str:
    """Names the settings without ``--config``: those of a project in this folder, or a preset."""
    return _PROJECT_CONFIG if pathlib.Path(_PROJECT_CONFIG).is_file() else PRESET


def settings_options(command: Decorated) -> Decorated:
    """Adds ``--config`` and ``--set``: arguments ``config`` and ``overrides``."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change one setting, such as train.epochs=20. Repeatable; the last value of a setting "
        "counts.",
    )(command)
    return click.option(
        "--config",
        default=default_config,
        metavar="NAME|FILE",
        help="A preset (cifar10, cifar10-resnet20, cifar100, finetune-pictures, finetune-text, "
        "image_classification, language_model, quickstart, regression, segmentation, taxi) or a "
        f"YAML file of settings. Default: {_PROJECT_CONFIG} if the current folder has one, as a "
        f"project of stagecraft init has; otherwise {PRESET}.",
    )(command)


def data_option(command: Decorated) -> Decorated:
    """Adds ``--data``: argument ``data``."""
    return click.option(
        "--data",
        metavar="PATH|sample|download",
        help="The data: what the task reads, such as an archive or folder with the layout of CIFAR "
        "(a path, or a gs://, s3:// or minio:// URI) or a text file; the generated sample; or the "
        "published archive. Default: data.source of the config.",
    )(command)


output_option = click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    metavar="DIR",
    help="The folder for everything that a run writes. Default: runs/NAME, where NAME is the name "
    "of the pipeline.",
)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout."
)


parameter_option = click.option(
    "--parameter",
    "-p",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of the pipeline. Repeatable; other parameters keep their defaults.",
)


def load_settings(
    config: str, overrides: tuple[str | Override, ...], data: str | None = None
) -> PipelineSettings:
    """Settings of the options ``--config``, ``--set`` and ``--data``."""
    from stagecraft.pipeline.settings import load  # --help needs none of it

    with quiet_imports():  # settings may name a module that imports TensorFlow
        return load(config, (*overrides, *override("--data", "data.source", data)))


def override(option: str, setting: str, value: Any) -> tuple[Override, ...]:
    """The setting that an option stands for; empty without it. Values stay text."""
    from stagecraft.pipeline.settings.overrides import Override

    return () if value is None else (Override.option(option, setting, value),)


def not_empty(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuses an empty text, which an unset shell variable leaves."""
    if value == "":
        raise click.BadParameter("is empty.", context, parameter)
    return value


def name_values(parameters: tuple[str, ...]) -> dict[str, str]:
    """The values of ``--parameter NAME=VALUE``."""
    values = {}
    for parameter in parameters:
        name, equals, value = parameter.partition("=")
        if not equals or not name:
            raise UserError(
                f"--parameter {parameter}: expected NAME=VALUE, such as train_steps=100",
                setting="--parameter",
                value=parameter,
            )
        values[name] = value
    return values
