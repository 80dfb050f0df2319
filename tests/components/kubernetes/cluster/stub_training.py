"""Functions in place of ``run_fn``, for what is about whoever starts the job and follows it."""

import json
import os
import pathlib
import sys
import threading
from typing import Any

from stagecraft.common.errors import UserError

GATE = "gate"  # file in the checkpoints' folder that some wait for


def role() -> str:
    """Such as ``worker 1``."""
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief", "index": 0})
    return f"{task['type']} {task['index']}"


def done(fn_args: Any) -> None:
    """Makes a model at once."""
    print(f"{role()} trains")
    if role() in ("chief 0", "worker 0"):
        pathlib.Path(fn_args.serving_model_dir).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(fn_args.serving_model_dir) / "model").write_text("weights")
        notes = {"steps": 4, "images_per_second": 1.0, "best": None}
        pathlib.Path(fn_args.model_run_dir).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(fn_args.model_run_dir) / "record.json").write_text(json.dumps(notes))


def done_or_serves(fn_args: Any) -> None:
    """The chief is done, the others serve for ever."""
    if role() == "chief 0":
        done(fn_args)
    else:
        hangs(fn_args)


def hangs(fn_args: Any) -> None:
    """Nothing happens any more."""
    del fn_args
    print(f"{role()} hangs")
    threading.Event().wait()


def waits(fn_args: Any) -> None:
    """For a file."""
    print(f"{role()} waits")
    gate = pathlib.Path(fn_args.working_dir).parent / GATE
    while not gate.exists():
        threading.Event().wait(0.02)
    done(fn_args)


def refuses(fn_args: Any) -> None:
    """One finds something wrong, the others know nothing of it."""
    print(f"{role()} has looked at its data")
    if role() == "worker 1":
        raise UserError("train.batch_size: 7: expected something else")
    hangs(fn_args)


def refuses_until_it_may_not(fn_args: Any) -> None:
    """Worker 1 does, as long as there is no gate."""
    if not (pathlib.Path(fn_args.working_dir).parent / GATE).exists():
        if role() == "worker 1":
            raise UserError("there is no gate")
        hangs(fn_args)
    done(fn_args)


def crashes(fn_args: Any) -> None:
    """As a segmentation fault, each time."""
    del fn_args
    print(f"{role()} crashes")
    sys.stdout.flush()
    os._exit(139)
