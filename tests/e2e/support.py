"""Runs the command as a user does, in a process of its own."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

STAGECRAFT = pathlib.Path(sys.executable).parent / "stagecraft"

TINY = (
    "data.sample_train=400",
    "data.sample_test=100",
    "data.shards=2",
    "train.steps=6",
    "train.batch_size=32",
    "evaluate.min_accuracy=0",
    "evaluate.thresholds={}",
    "evaluate.better_than_constant=false",
)
"""Settings under which a whole pipeline takes little more than its imports."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What a ``stagecraft run --json`` left behind."""

    result: dict[str, Any]
    stdout: str
    stderr: str

    @property
    def states(self) -> dict[str, str]:
        return {name: node["state"] for name, node in self.result["components"].items()}

    def executed(self) -> set[str]:
        return {name for name, state in self.states.items() if state == "done"}


def command(output: pathlib.Path, *words: object, settings: tuple[str, ...] = TINY) -> list[str]:
    overrides = [word for setting in settings for word in ("--set", setting)]
    return [str(w) for w in (STAGECRAFT, "run", "--json", "--output", output, *overrides, *words)]


def run(
    output: pathlib.Path,
    *words: object,
    settings: tuple[str, ...] = TINY,
    path: pathlib.Path | None = None,
    cwd: pathlib.Path | None = None,
    code: int = 0,
) -> Run:
    """Runs the pipeline, which ends with this code; ``path`` comes first on the module path."""
    env = dict(os.environ, COLUMNS="200")
    if path is not None:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run(
        command(output, *words, settings=settings),
        capture_output=True,
        text=True,
        env=env,
        cwd=cwd or output.parent,
        timeout=600,
    )
    assert done.returncode == code, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    try:
        result = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        result = {}
    return Run(result, done.stdout, done.stderr)
