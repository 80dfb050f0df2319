"""Writes the pages of reference that are made from the code: settings, and the commands' help."""

from __future__ import annotations

from typing import Any

import click
from mkdocs.structure.files import File

from stagecraft.pipeline.cli.describe_settings import described
from stagecraft.pipeline.cli.main import main

WIDTH = 100

SETTINGS = """# Settings

Every setting, as `--set` takes it and as a YAML file nests it: `train.steps` is `steps` below
`train:`. What is not given has its default; `stagecraft config` prints what a run would have. A
value that cannot be is refused before anything starts, with the name of the file or the option that
gave it. Numbers are finite, and whole ones are below 2^63.

A file is in UTF-8, and has each key once. Dates are text. An empty file is refused; `{}` is all
defaults. [Secrets](../how-to/secrets.md) have no place in it.
"""

COMMANDS = """# Commands

What `--help` prints. All commands exit with 0 when they did what was asked, 1 when that failed, 2
when the command line cannot be, and 130 after Ctrl-C.
"""


def on_files(files: Any, config: Any) -> None:
    """Adds the pages; they lie in no folder."""
    for path, text in {
        "reference/settings.md": settings_page(),
        "reference/commands.md": commands_page(),
    }.items():
        files.append(File.generated(config, path, content=text))


def settings_page() -> str:
    """A table for each section."""
    lines, section = [SETTINGS], ""
    for setting in described():
        above = setting.name.rpartition(".")[0] or "The pipeline"
        if above != section:
            section = above
            lines += [
                f"\n## {section}\n",
                "| setting | type | default | meaning |",
                "|---|---|---|---|",
            ]
        entries = [f"`{name}`: {text}" for name, text in setting.entries.items()]
        meaning = "<br>".join([setting.meaning, *entries])
        cells = (f"`{setting.name}`", setting.kind, f"`{setting.default}`", meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """A section for each command; those of a group below it."""
    return COMMANDS + "".join(_help_of(main, "stagecraft", 2))


def _help_of(command: click.Command, name: str, level: int) -> list[str]:
    context = click.Context(command, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH)
    found = [f"\n{'#' * level} {name}\n\n```text\n{command.get_help(context)}\n```\n"]
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            found += _help_of(command.commands[word], f"{name} {word}", min(level + 1, 4))
    return found
