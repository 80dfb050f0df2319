"""Trains in this process, or starts the processes of the training, locally or in a cluster."""

from __future__ import annotations

import importlib
from typing import Any

from stagecraft.trainer_module.processes import launcher
from stagecraft.trainer_module.settings import TrainingSettings

RUN_FN = "run_fn"  # in ``custom_config``: dotted path of the function that trains
JOB_FOLDER = "job_folder"  # in ``custom_config``: the folder of a cluster job; None without a job


def run(fn_args: Any) -> None:
    """Stands in for the ``run_fn`` that ``custom_config`` names; TFX's Trainer calls it."""
    config = fn_args.custom_config
    path, job_folder = config.pop(RUN_FN), config.pop(JOB_FOLDER, None)
    parallel = TrainingSettings.from_flat(config["settings"]).parallel
    if parallel.launcher == "kubernetes":
        from stagecraft.components.kubernetes.launch import launch

        launch.run(path, fn_args, parallel, job_folder)
        return
    if launcher.is_local(parallel):
        launcher.run_local(path, fn_args, parallel)
        return
    module, _, name = path.rpartition(".")
    getattr(importlib.import_module(module), name)(fn_args)
