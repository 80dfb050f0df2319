"""A worker of a training with a fault in it:

    python benchmarks/robustness/faults/faulty_worker.py FAULT.json -

FAULT.json is a :class:`Fault`. It strikes once, in one process; a file prevents it from striking
again after a restart. Faults from outside, such as a signal, are in ``scenarios``.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import pathlib
import signal
import sys
import threading
import time
from typing import Any

from stagecraft.trainer_module import worker
from stagecraft.trainer_module.processes.process import end_with_parent


@dataclasses.dataclass(frozen=True)
class Fault:
    """A kind of fault, its process and its time."""

    kind: str
    """``absent``, ``before_commit``, ``full_disk`` or ``nan``."""

    role: str
    """The process, such as ``worker 1``."""

    step: int
    struck: str
    """The file that it writes when it strikes: the time, in seconds since 1970."""


def strike(path: str) -> None:
    """Writes the current time to the file of a fault; call it when the fault begins."""
    pathlib.Path(path).write_text(repr(time.time()))


def main(fault_path: str, task: str, descriptor: str) -> int:
    """Runs the task as the worker does."""
    fault = Fault(**json.loads(pathlib.Path(fault_path).read_text()))
    task_here = json.loads(os.environ["TF_CONFIG"])["task"]
    if f"{task_here['type']} {task_here['index']}" == fault.role and not os.path.exists(
        fault.struck
    ):
        {
            "absent": _stay_away,
            "before_commit": _die_before_commit,
            "full_disk": _fill_disk,
            "nan": _spoil_batch,
        }[fault.kind](fault)
    return worker.main(task, descriptor)


def _stay_away(fault: Fault) -> None:
    strike(fault.struck)
    end_with_parent()
    threading.Event().wait()


def _die_before_commit(fault: Fault) -> None:
    """Kills this process between the checkpoint's last byte and its rename."""
    rename = pathlib.Path.rename

    def die(self: pathlib.Path, target: Any) -> pathlib.Path:
        name = pathlib.Path(target).name
        if name.isdecimal() and int(name) >= fault.step:
            strike(fault.struck)
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)

    pathlib.Path.rename = die  # type: ignore[method-assign, assignment]


def _fill_disk(fault: Fault) -> None:
    """Fills the disk after the first half of a checkpoint's data."""
    import tensorflow as tf

    save = tf.raw_ops.SaveV2

    def fail(*, prefix: str, **rest: Any) -> Any:
        save(prefix=prefix, **rest)
        name = pathlib.Path(prefix).parent.name.split(".")[1]
        if not (name.isdecimal() and int(name) >= fault.step) or os.path.exists(fault.struck):
            return
        strike(fault.struck)
        for path in pathlib.Path(prefix).parent.glob("*.data-*"):
            os.truncate(path, path.stat().st_size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), prefix)

    tf.raw_ops.SaveV2 = fail


def _spoil_batch(fault: Fault) -> None:
    """Makes the images of one batch NaN."""
    import tensorflow as tf

    from stagecraft.trainer_module.data import input_data

    train_dataset = input_data.train_dataset

    def spoiled(*args: Any, **more: Any) -> tf.data.Dataset:
        first = args[4]

        def spoil(number: tf.Tensor, batch: Any) -> Any:
            bad = tf.equal(number + first, fault.step)
            factor = tf.where(bad, tf.constant(float("nan")), tf.constant(1.0))
            return batch._replace(inputs=batch.inputs * factor)

        return train_dataset(*args, **more).enumerate().map(spoil)

    input_data.train_dataset = spoiled


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
