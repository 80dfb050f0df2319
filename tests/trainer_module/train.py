"""Runs `run_fn` in a process of its own: python train.py FN_ARGS.json"""

import json
import pathlib
import sys
import types

from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.run_fn import run_fn
from stagecraft.trainer_module.settings import TrainingSettings

fn_args = types.SimpleNamespace(**json.loads(pathlib.Path(sys.argv[1]).read_text()))
topology.configure_devices(TrainingSettings.from_flat(fn_args.custom_config["settings"]).parallel)
run_fn(fn_args)
