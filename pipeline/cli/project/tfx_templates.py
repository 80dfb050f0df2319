"""Stagecraft's templates in ``tfx template list`` and ``tfx template copy``.

Their names begin with ``stagecraft_``, so that TFX's template ``taxi`` stays what it is.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import click
from tfx.tools.cli import labels
from tfx.tools.cli.commands import template
from tfx.tools.cli.handler import template_handler

from stagecraft.common.errors import UserError
from stagecraft.pipeline.cli.project import writing

PREFIX = "stagecraft_"

_stock_list, _stock_copy = template_handler.list_template, template_handler.copy_template


def register() -> None:
    """Adds the templates to TFX's commands in this process."""
    template_handler.list_template = list_template
    template_handler.copy_template = copy_template
    (option,) = (each for each in template.copy.params if each.name == "model")
    assert isinstance(option, click.Option)
    option.help = (
        f"Name of the template to copy. {', '.join(_ours())}: the projects of 'stagecraft init'. "
        "taxi, penguin: TFX's own templates."
    )


def list_template() -> list[str]:
    """Names of TFX's templates, followed by ours."""
    return [*sorted(_stock_list()), *_ours()]


def copy_template(flags: dict[str, Any]) -> None:
    """Writes the project of a template; replaces TFX's function of this name."""
    model = flags[labels.MODEL]
    if model in _stock_list():
        _stock_copy(flags)
        return
    if model not in _ours():
        sys.exit(f"--model: {model} does not exist; use one of {', '.join(list_template())}")
    folder = flags[labels.DESTINATION_PATH]
    try:
        writing.write(pathlib.Path(folder), model.removeprefix(PREFIX), flags[labels.PIPELINE_NAME])
    except UserError as error:
        # The names of this command's options.
        option = {"--name": "--pipeline-name", "DIR": "--destination-path"}[error.setting]
        sys.exit(str(error).replace(f"{error.setting}:", f"{option}:", 1))
    click.echo(f"Project written to {folder}.")


def _ours() -> list[str]:
    return [f"{PREFIX}{name}" for name in writing.templates()]
