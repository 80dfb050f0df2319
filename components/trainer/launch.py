"""Trains in this process, or starts the processes of the training, locally or in a cluster."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.parallel.roles import jobs
from stagecraft.trainer_module.processes import shares
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.supervisor import WORKER, Supervisor
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings
from stagecraft.trainer_module.worker import task_of

RUN_FN = "run_fn"  # in ``custom_config``: dotted path of the function that trains
JOB_FOLDER = "job_folder"  # in ``custom_config``: the folder of a cluster job; None without a job
_progress = logging.getLogger("stagecraft.progress")
_log = logging.getLogger(__name__)


def run(fn_args: Any) -> None:
    """Stands in for the ``run_fn`` that ``custom_config`` names; TFX's Trainer calls it."""
    config = fn_args.custom_config
    path, job_folder = config.pop(RUN_FN), config.pop(JOB_FOLDER, None)
    parallel = TrainingSettings.from_flat(config["settings"]).parallel
    if parallel.launcher == "kubernetes":
        from stagecraft.components.kubernetes.launch import launch

        launch.run(path, fn_args, parallel, job_folder)
        return
    if is_local(parallel):
        run_local(path, fn_args, parallel)
        return
    module, _, name = path.rpartition(".")
    getattr(importlib.import_module(module), name)(fn_args)


def is_local(parallel: ParallelSettings) -> bool:
    """Whether this process starts local workers instead of training itself."""
    if parallel.launcher == "auto":
        return bool(jobs(parallel)) and not cluster.is_set()
    return parallel.launcher == "local"


def run_local(
    path: str,
    fn_args: Any,
    parallel: ParallelSettings,
    *,
    on_event: Callable[[Event], None] | None = None,
    write_log: Callable[[str], None] | None = None,
    program: Sequence[str] = WORKER,
) -> None:
    """Trains in processes on this host, and waits for their end.

    Args:
        on_event: receives events of chief and supervisor; None: log them as progress.
        write_log: receives each line that the processes print; None: standard error.
    """
    Supervisor(
        parallel,
        ["-"],
        first_line=task_of(path, fn_args),
        write_log=write_log or (lambda line: print(line, file=sys.stderr)),
        on_event=on_event or _show,
        environments=lambda roles: shares.environments(
            parallel, roles, cores=len(os.sched_getaffinity(0)), gpus=shares.gpus(parallel)
        ),
        program=program,
    ).run()


def _show(event: Event) -> None:
    fields = {key: value for key, value in event.items() if key != "event"}
    if event["event"] == "progress":
        values = [event.get("step"), event.get("total")]
        text = "resuming from step %s of %s" if event.get("phase") == "resume" else "step %s of %s"
        if event.get("phase") == "export":
            text, values = "exporting the model", []
        _progress.info(text, *values, extra={"progress": fields})
    elif event["event"] == "restart":
        _progress.warning(
            "restart %d: %s",
            event["number"],
            event["message"],
            extra={"progress": {"phase": "restart", "done": event["number"], **fields}},
        )
