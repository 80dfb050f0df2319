"""The command line of a run, as the report and messages show it."""

from __future__ import annotations

import pathlib
import shlex
from typing import TYPE_CHECKING

from stagecraft.common import secrets
from stagecraft.pipeline.cli.options import DEFAULT_CONFIG

if TYPE_CHECKING:
    from stagecraft.pipeline.settings.overrides import Override

_MAY_BE_SECRET = ("kubeflow", "beam")
"""Sections whose values may hold a password: the command line shows only their names."""


def run_command(
    *,
    config: str = DEFAULT_CONFIG,
    data: str | None = None,
    overrides: tuple[str | Override, ...] = (),
    output: pathlib.Path | None = None,
    runner: str = "local",
    from_node: str | None = None,
    to_node: str | None = None,
    fresh: bool = False,
) -> str:
    """``stagecraft run`` with the options that differ from the defaults."""
    words = ["stagecraft", "run"]
    if config != DEFAULT_CONFIG:
        words += ["--config", config]
    if data is not None:
        words += ["--data", data]
    if output is not None:
        words += ["--output", str(output)]
    for override in overrides:
        words += _override(override)
    if runner != "local":
        words += ["--runner", runner]
    if fresh:
        words.append("--fresh")
    for option, node in (("--from", from_node), ("--to", to_node)):
        if node:
            words += [option, node]
    return shlex.join(words)


def _override(override: str | Override) -> list[str]:
    if not isinstance(override, str):
        return override.text.split(" ", 1)
    key, _, _ = override.partition("=")
    if key.strip().partition(".")[0] in _MAY_BE_SECRET:
        return ["--set", f"{key}={secrets.LEFT_OUT}"]
    return ["--set", secrets.redact(override)]
