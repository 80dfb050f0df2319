"""``stagecraft emulate``."""

from __future__ import annotations

import pathlib
import time
from typing import TYPE_CHECKING, Any

import click

from stagecraft.common.errors import UserError
from stagecraft.common.text import duration
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console

if TYPE_CHECKING:
    from stagecraft.pipeline.kubeflow.emulator.run import Ended, Run

_LINES_OF_LOG = 30


@click.command(cls=Command, short_help="Run a compiled pipeline on this machine, as on Kubeflow.")
@click.argument("file", type=click.Path(path_type=pathlib.Path))
@options.parameter_option
@click.option(
    "--output",
    "-o",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    help="The folder for the emulated object store, the logs and the cache. Default: "
    "runs/emulated/NAME, where NAME is the name of the pipeline.",
)
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="The maximum number of steps that run at the same time.",
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="Run each step in a container of this image, with docker or podman. Default: in a process "
    "of this Python environment.",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the summary on stdout.")
def emulate(
    file: pathlib.Path,
    parameters: tuple[str, ...],
    output: pathlib.Path | None,
    parallel: int,
    image: str | None,
    as_json: bool,
) -> int:
    """Run a compiled pipeline on this machine, as Kubeflow Pipelines would.

    The command reads only FILE. It runs the command of each step as a process in this Python
    environment, or in a container of --image. Like the Kubeflow launcher, the command downloads the
    inputs before a step, passes them without types, and uploads the outputs after the step. A
    folder replaces the object store. The command also emulates retries, time limits, and the cache
    with the key of the backend. A step whose condition is false is skipped, and so are the steps
    that need it. An exit handler runs at the end, also after a failure.

    \b
    stagecraft compile && stagecraft emulate quickstart.yaml
    stagecraft emulate quickstart.yaml -p train_epochs=2 -p train_seed=1
    docker build -t stagecraft:dev . && stagecraft emulate --image stagecraft:dev quickstart.yaml

    A container has the user of the image, no network, and the limits of processors, memory and
    shared memory that FILE gives its step. A folder replaces each volume claim. Without --image, a
    step can use the whole machine, and has no volumes.

    The command does not emulate loops, several users, node selectors, tolerations, or GPUs. A
    step opens s3:// and minio:// URIs only with keys from its secrets or variables. The values that
    a step receives were compared with those of a real backend.

    The last line is JSON: run_id, pushed, blessed, steps. Exit code: 0; 1 if a step failed; 130
    after Ctrl-C.
    """
    started = time.monotonic()
    from stagecraft.pipeline.kubeflow import document
    from stagecraft.pipeline.kubeflow.emulator.containers import Containers
    from stagecraft.pipeline.kubeflow.emulator.run import Run
    from stagecraft.pipeline.local import lock

    try:
        compiled = document.load(file)
        arguments = compiled.arguments(options.name_values(parameters))
        folder = output or pathlib.Path("runs") / "emulated" / compiled.name
        compiled.steps()
        with lock.held(folder):
            containers = Containers(image, folder.absolute()) if image else None
            emulated = Run(compiled, folder.absolute(), arguments, containers)
            interrupted = _follow(emulated, parallel, stderr=as_json)
    except OSError as error:
        raise UserError(str(error), file=str(error.filename or "")) from error
    for name, ended in emulated.ended.items():
        if ended.state == "failed":
            _print_failure(name, ended)
    summary = _summary(emulated)
    if not as_json:
        blessed = {True: "yes", False: "no", None: "nothing to bless"}[summary["blessed"]]
        console.fields(
            [
                ("logs", str(emulated.folder)),
                ("blessed", blessed),
                ("pushed", summary["pushed"] or "nothing"),
                ("took", duration(time.monotonic() - started)),
            ]
        )
    console.say_json(summary)
    if interrupted:
        return 130
    return 1 if emulated.failed else 0


def _follow(emulated: Run, parallel: int, *, stderr: bool) -> bool:
    """Runs the pipeline and shows it; returns whether a signal interrupted it."""
    from stagecraft.pipeline.cli.terminal.run_view import RunState, run_view
    from stagecraft.pipeline.local import interrupt

    state = RunState(emulated.steps)
    state.run_id = emulated.run_id
    with interrupt.handled(), run_view(state, stderr=stderr) as show:

        def on_event(name: str, node_state: str, ended: Ended | None) -> None:
            event: dict[str, Any] = {"kind": "node", "node": name, "state": node_state}
            if ended is not None:
                event |= {"seconds": ended.seconds, "cause": ended.cause}
                if ended.attempts > 1:
                    event["figure"] = f"{ended.attempts} attempts"
            show(event)

        try:
            emulated.run(parallel=parallel, on_event=on_event)
        except KeyboardInterrupt:
            return True
    return False


def _print_failure(name: str, ended: Ended) -> None:
    lines = ended.log.read_text(errors="replace").splitlines() if ended.log.exists() else []
    console.say("\n".join(lines[-_LINES_OF_LOG:]), stderr=True)
    console.error(f"{name}: {ended.cause}\nlog: {ended.log}")


def _summary(emulated: Run) -> dict[str, Any]:
    pushed: str | None = None
    blessed: bool | None = None
    steps: dict[str, dict[str, Any]] = {name: {"state": "skipped"} for name in emulated.steps}
    for name, ended in emulated.ended.items():
        steps[name] = {
            "state": ended.state,
            "seconds": round(ended.seconds, 2),
            "attempts": ended.attempts,
        }
        if ended.cause:
            steps[name]["cause"] = ended.cause
        for artifact in (ended.outputs or {"artifacts": {}})["artifacts"].values():
            schema = artifact["type"].get("instanceSchema", "")
            metadata = artifact["metadata"]
            if schema.startswith("title: tfx.ModelBlessing"):
                blessed = metadata.get("blessed") == 1
            elif schema.startswith("title: tfx.PushedModel") and metadata.get("pushed") == 1:
                pushed = metadata.get("pushed_destination")
    return {"pushed": pushed, "blessed": blessed, "run_id": emulated.run_id, "steps": steps}
