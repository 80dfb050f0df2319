"""Runs `run_fn` in a process of its own: python train.py FN_ARGS.json [STATE_AT_THE_END.npz]"""

import json
import pathlib
import sys
import types
from typing import Any

import numpy as np

from stagecraft.trainer_module.parallel.topology import configure_devices
from stagecraft.trainer_module.run_fn import run_fn
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.training.loop import Loop
from stagecraft.trainer_module.training.record import Outcome

run = Loop.run


def run_and_keep(self: Loop, *data: Any) -> Outcome:
    outcome = run(self, *data)
    for out in sys.argv[2:]:
        np.savez(out, **self.engine.state())
    return outcome


Loop.run = run_and_keep
fn_args = types.SimpleNamespace(**json.loads(pathlib.Path(sys.argv[1]).read_text()))
configure_devices(TrainingSettings.from_flat(fn_args.custom_config["settings"]).parallel)
run_fn(fn_args)
