"""The command line of a run, written anew from what it asks for."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Iterator

from stagecraft.pipeline.cli.options import DEFAULT_CONFIG

_MAY_BE_SECRET = ("kubeflow", "beam")
"""Sections whose values may hold a password: their names alone are shown."""


def text(
    *,
    config: str = DEFAULT_CONFIG,
    data: str | None = None,
    overrides: tuple[str, ...] = (),
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
        overrides: ``key=value``.
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
    for override in _shown(overrides):
        words += ["--set", override]
    if runner != "local":
        words += ["--runner", runner]
    if fresh:
        words.append("--fresh")
    for option, node in (("--from", from_node), ("--to", to_node)):
        if node:
            words += [option, node]
    return shlex.join(words)


def _shown(overrides: tuple[str, ...]) -> Iterator[str]:
    for override in overrides:
        key, _, _ = override.partition("=")
        yield f"{key}=…" if key.strip().partition(".")[0] in _MAY_BE_SECRET else override
