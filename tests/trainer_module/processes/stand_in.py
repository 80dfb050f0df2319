"""Stands in for `run_fn`, for tests of the worker."""

import os
import signal
import threading
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.processes import events, preemption


def run_fn(fn_args: Any) -> None:
    what = fn_args.train_files
    if what == "good":
        assert fn_args.data_accessor is None
        events.emit("phase", phase="train")
    elif what == "user error":
        raise UserError("train.model: no such model")
    elif what == "bug":
        raise KeyError("weight")
    elif what == "preempted":
        preemption.expect_checkpoint()
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(0.2)
        assert preemption.requested()
        raise preemption.Preempted(7)
    elif what == "terminated":  # before there is anything to save
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(60)
    elif what == "forever":
        threading.Event().wait(60)
