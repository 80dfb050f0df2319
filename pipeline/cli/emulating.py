"""What ``stagecraft emulate`` does: check, run, show, sum up."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import Any

from stagecraft.pipeline.cli import console
from stagecraft.pipeline.cli.options import name_values
from stagecraft.pipeline.cli.state import RunState
from stagecraft.pipeline.cli.wording import duration
from stagecraft.pipeline.kubeflow import document
from stagecraft.pipeline.kubeflow.emulator.run import Ended, Run
from stagecraft.pipeline.local import interrupt, lock
from stagecraft.schemas.errors import UserError

_LINES_OF_LOG = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The command line of ``stagecraft emulate``, as given."""

    file: pathlib.Path
    parameters: tuple[str, ...]
    output: pathlib.Path | None
    parallel: int
    as_json: bool


def run(request: Request) -> int:
    """Runs it and shows it; the command's exit code."""
    started = time.monotonic()
    try:
        compiled = document.load(request.file)
        arguments = compiled.arguments(name_values(request.parameters))
        folder = request.output or pathlib.Path("runs") / "emulated" / compiled.name
        compiled.steps()
        with lock.held(folder):
            emulated = Run(compiled, folder.absolute(), arguments)
            interrupted = _follow(emulated, request)
    except (UserError, OSError) as error:
        if request.as_json:
            console.say_json({"error": str(error)})
        console.error(str(error))
        return 1
    seconds = time.monotonic() - started
    failed = {name: how for name, how in emulated.ended.items() if how.state == "failed"}
    for name, how in failed.items():
        _tell_failure(name, how)
    summary = _summary(emulated)
    if not request.as_json:
        console.rows(
            [
                ("logs", str(emulated.folder)),
                (
                    "blessed",
                    {True: "yes", False: "no", None: "nothing to bless"}[summary["blessed"]],
                ),
                ("pushed", summary["pushed"] or "nothing"),
                ("took", duration(seconds)),
            ]
        )
    console.say_json(summary)
    if interrupted:
        return 130
    finished = all(
        name in emulated.ended and emulated.ended[name].state in ("done", "cached")
        for name in emulated.steps
    )
    return 0 if finished else 1


def _follow(emulated: Run, request: Request) -> bool:
    """Runs it and shows it; whether it was interrupted."""
    state = RunState(emulated.steps)
    state.run_id = emulated.run_id
    with interrupt.handled(), console.following(state, stderr=request.as_json) as show:

        def on_event(name: str, what: str, ended: Ended | None) -> None:
            event: dict[str, Any] = {"kind": "node", "node": name, "state": what}
            if ended is not None:
                event |= {"seconds": ended.seconds, "cause": ended.cause}
                if ended.attempts > 1:
                    event["figure"] = f"{ended.attempts} attempts"
            state.apply(event)
            show(event)

        try:
            emulated.run(parallel=request.parallel, on_event=on_event)
        except KeyboardInterrupt:
            return True
    return False


def _tell_failure(name: str, how: Ended) -> None:
    lines = how.log.read_text(errors="replace").splitlines() if how.log.exists() else []
    console.say("\n".join(lines[-_LINES_OF_LOG:]), stderr=True)
    console.error(f"{name}: {how.cause}\nlog: {how.log}")


def _summary(emulated: Run) -> dict[str, Any]:
    ended = emulated.ended
    pushed: str | None = None
    blessed: bool | None = None
    for how in ended.values():
        for artifact in (how.outputs or {"artifacts": {}})["artifacts"].values():
            schema = artifact["type"].get("instanceSchema", "")
            metadata = artifact["metadata"]
            if schema.startswith("title: tfx.ModelBlessing"):
                blessed = metadata.get("blessed") == 1
            elif schema.startswith("title: tfx.PushedModel") and metadata.get("pushed") == 1:
                pushed = metadata.get("pushed_destination")
    return {
        "pushed": pushed,
        "blessed": blessed,
        "run_id": emulated.run_id,
        "steps": {
            name: (
                {
                    "state": ended[name].state,
                    "seconds": round(ended[name].seconds, 2),
                    "attempts": ended[name].attempts,
                    **({"cause": ended[name].cause} if ended[name].cause else {}),
                }
                if name in ended
                else {"state": "skipped"}
            )
            for name in emulated.steps
        },
    }
