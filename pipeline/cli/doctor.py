"""``stagecraft doctor``."""

from __future__ import annotations

import pathlib
import sys

import click


@click.command(short_help="Say what this machine can run, and what to do about the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def doctor(as_json: bool) -> None:
    """Say what this machine can run, and what to do about the rest.

    Looks at the interpreter, the installed stack, pip, processors, memory, disk, the network and
    TensorFlow's devices (which takes a few seconds). Exit code 1 only if something is missing that
    every run needs.
    """
    from stagecraft.pipeline.cli import checks, console  # --help needs none of it

    found = []
    for check in checks.all_checks(pathlib.Path.cwd()):
        found.append(check)
        if not as_json:
            console.say(f"{check.verdict:<8}{check.name:<12}{check.found}")
            if check.advice:
                console.say(f"{'':<20}{check.advice}")
    enough = not any(check.verdict == "missing" for check in found)
    if as_json:
        console.say_json({"ok": enough, "checks": {check.name: vars(check) for check in found}})
    elif enough:
        console.say("everything that a run needs is here")
    sys.exit(0 if enough else 1)
