"""The command line of a run, written anew from what it asks for."""

from __future__ import annotations

import pathlib
import shlex

from stagecraft.pipeline.cli.options import DEFAULT_CONFIG
from stagecraft.pipeline.settings.overrides import Override
from stagecraft.schemas import secrets

_MAY_BE_SECRET = ("kubeflow", "beam")
"""Sections whose values may hold a password: their names alone are shown."""


def text(
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
    """``stagecraft run`` with the options that are not the default.

    Args:
        config: preset or file.
        data: what is read.
        overrides: ``key=value``, and options that stand for a setting.
        output: folder.
        runner: ``local`` or ``beam``.
        from_node: where it starts.
        to_node: where it stops.
        fresh: whether checkpoints are forgotten.
    """
    words = ["stagecraft", "run"]
    if config != DEFAULT_CONFIG:
        words += ["--config", config]
    if data is not None:
        words += ["--data", data]
    if output is not None:
        words += ["--output", str(output)]
    for override in overrides:
        words += _shown(override)
    if runner != "local":
        words += ["--runner", runner]
    if fresh:
        words.append("--fresh")
    for option, node in (("--from", from_node), ("--to", to_node)):
        if node:
            words += [option, node]
    return shlex.join(words)


def _shown(override: str | Override) -> list[str]:
    if not isinstance(override, str):
        return override.given.split(" ", 1)
    key, _, _ = override.partition("=")
    if key.strip().partition(".")[0] in _MAY_BE_SECRET:
        return ["--set", f"{key}={secrets.LEFT_OUT}"]
    return ["--set", secrets.redact(override)]
