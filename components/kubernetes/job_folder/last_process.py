"""The chief ends last: controllers end a job with its chief, and delete the pods that still run.

A worker that uploads its outputs at that moment would leave half of them. Imports no TensorFlow.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from typing import Any

from stagecraft.components.kubernetes.job_folder import shared_folder
from stagecraft.trainer_module.parallel import roles, tf_config
from stagecraft.trainer_module.settings import TrainingSettings

PATIENCE_SECONDS = 120.0  # for peers that have finished the same training

_log = logging.getLogger(__name__)


def leave(
    folder: str,
    settings: dict[str, Any],
    sleep: Callable[[float], Any] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Reports in the job folder that this process has succeeded; the chief waits for its peers.

    Args:
        settings: the task's settings, by their flat names.
    """
    if not tf_config.is_set():
        return
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    own = f"{task['type']} {task['index']}"
    parallel = TrainingSettings.from_flat(settings).parallel
    count = sum(roles.jobs(parallel).values())
    # Servers never end, and the chief has read the evaluator's results.
    chief, *peers = (
        role.name
        for role in roles.roles(parallel, [""] * count)
        if not role.serves and role.job != "evaluator"
    )
    shared = shared_folder.at(folder)
    if own != chief:
        shared.write(_file(own), b"{}")
        return
    begun = monotonic()
    while missing := [peer for peer in peers if shared.read(_file(peer)) is None]:
        if monotonic() - begun > PATIENCE_SECONDS:
            _log.warning("%s did not end within %.0f s", ", ".join(missing), PATIENCE_SECONDS)
            return
        sleep(1.0)


def _file(role: str) -> str:
    return f"ended-{role.replace(' ', '-')}.json"
