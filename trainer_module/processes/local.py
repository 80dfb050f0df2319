"""Trains in processes on this host, where the settings ask for several."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.parallel.devices import configure_devices
from stagecraft.trainer_module.parallel.roles import jobs
from stagecraft.trainer_module.processes import isolation, process_group
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.supervisor import WORKER, Supervisor
from stagecraft.trainer_module.settings import ParallelSettings

_progress = logging.getLogger("stagecraft.progress")


_begun: list[str] = []


def begin(task: str) -> None:
    """Notes that this process exists for a training, so that it starts no others."""
    _begun.append(task)


def is_begun() -> bool:
    """Whether this process exists for a training."""
    return bool(_begun)


def task_of(run_fn: str, fn_args: Any) -> str:
    """The content of a worker's TASK.json, as one line.

    Leaves out ``data_accessor``, which holds functions.
    """
    fields = {name: value for name, value in vars(fn_args).items() if name != "data_accessor"}
    return json.dumps({"run_fn": run_fn, "fn_args": fields})


def is_local(parallel: ParallelSettings) -> bool:
    """Whether this process starts local workers instead of training itself."""
    if parallel.launcher == "auto":
        return bool(jobs(parallel)) and not cluster.is_set()
    return parallel.launcher == "local"


def are_needed(parallel: ParallelSettings) -> bool:
    """Whether a script's process cannot train by itself, and starts local workers.

    The topology has several processes; or TensorFlow has started here without the logical devices
    of ``virtual_devices``, and makes them in a new process alone.
    """
    if cluster.is_set() or is_begun():
        return False
    if is_local(parallel):
        return True
    try:
        configure_devices(parallel)
    except UserError:
        return parallel.launcher == "auto"
    return False


def run_local(
    path: str,
    fn_args: Any,
    parallel: ParallelSettings,
    *,
    on_event: Callable[[Event], None] | None = None,
    write_log: Callable[[str], None] | None = None,
    program: Sequence[str] = WORKER,
    variables: Mapping[str, str | None] = MappingProxyType({}),
) -> None:
    """Trains in processes on this host, and waits for their end.

    If all files are local, and the system allows it, the processes have a network of their own.
    Otherwise an event ``progress`` with the phase ``network`` says so.

    Args:
        on_event: receives events of chief and supervisor; None: log them as progress.
        write_log: receives each line that the processes print; None: standard error.
        variables: of the environment of each process; None removes one.
    """
    on_event = on_event or _show

    def tell(reason: str) -> None:
        on_event({"event": "progress", "phase": "network", "reason": reason})

    wanted: AbstractContextManager[isolation.Namespace | None] = contextlib.nullcontext()
    if jobs(parallel):
        wanted = isolation.network(parallel.isolated, vars(fn_args), tell)
    with wanted as namespace:
        Supervisor(
            parallel,
            ["-"],
            first_line=task_of(path, fn_args),
            write_log=write_log or (lambda line: print(line, file=sys.stderr)),
            on_event=on_event,
            environments=lambda roles: [
                {**own, **variables}
                for own in process_group.environments(
                    parallel,
                    roles,
                    cores=len(os.sched_getaffinity(0)),
                    gpus=process_group.gpus(parallel),
                )
            ],
            program=program,
            namespace=namespace,
        ).run()


def import_path() -> Mapping[str, str | None]:
    """The variable with which another process imports what this one can."""
    return {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}


def _show(event: Event) -> None:
    fields = {key: value for key, value in event.items() if key != "event"}
    if event["event"] == "progress":
        values = [event.get("step"), event.get("total")]
        text = "resuming from step %s of %s" if event.get("phase") == "resume" else "step %s of %s"
        if event.get("phase") == "export":
            text, values = "exporting the model", []
        if event.get("phase") == "network":
            text, values = "%s", [isolation.warning(event["reason"])]
        if event.get("phase") == "weights":
            text, values = "%s", [event["note"]]
        if event.get("phase") == "wait":
            text = "waiting for at most %s s: %s may still use %s"
            values = [event["seconds"], event["holder"], event["file"]]
        if event.get("phase") == "precision":
            text, values = "precision %s: %s", [event["precision"], event["reason"]]
        is_warning = event.get("phase") in ("network", "wait")
        level = logging.WARNING if is_warning else logging.INFO
        _progress.log(level, text, *values, extra={"progress": fields})
    elif event["event"] == "restart":
        _progress.warning(
            "restart %d: %s",
            event["number"],
            event["message"],
            extra={"progress": {"phase": "restart", "done": event["number"], **fields}},
        )
