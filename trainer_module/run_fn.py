"""TFX's entry into the trainer: wires the parts together."""

from __future__ import annotations

import functools
import os
from typing import Any

import tensorflow_transform as tft

from stagecraft.trainer_module import input_data, labels, record, topology
from stagecraft.trainer_module.assemble import assemble
from stagecraft.trainer_module.atomic_folder import disk_errors
from stagecraft.trainer_module.checkpoints import Checkpoints
from stagecraft.trainer_module.engines.strategy import StrategyEngine
from stagecraft.trainer_module.export import export
from stagecraft.trainer_module.loop import Loop, steps_between_evaluations, total_steps
from stagecraft.trainer_module.reporting import Reporter
from stagecraft.trainer_module.settings import TrainingSettings


def run_fn(fn_args: Any) -> None:
    """Trains on ``train_files``, selects on ``eval_files``, exports to ``serving_model_dir``.

    Args:
        fn_args: TFX's ``FnArgs``. ``custom_config["settings"]`` is ``TrainingSettings.flat()``,
            ``working_dir`` the folder of this training's checkpoints, which survives a retry
            (with TFX's own Trainer, which sets none: a folder in ``model_run_dir``).

    Raises:
        UserError: data, model, disk, devices or loss are not as they should be.
    """
    settings = TrainingSettings.from_flat(fn_args.custom_config["settings"])
    train, devices = settings.train, topology.resolve(settings.parallel)
    transform = tft.TFTransformOutput(fn_args.transform_graph_path)
    class_names = labels.class_names(fn_args.schema_path)
    count = input_data.count_examples
    examples = {"train": count(fn_args.train_files), "val": count(fn_args.eval_files)}

    total = total_steps(train, examples["train"])
    build_model = functools.partial(assemble, train, len(class_names))
    run_dir = fn_args.model_run_dir
    os.makedirs(run_dir, exist_ok=True)
    with disk_errors(run_dir), Reporter(run_dir) as reporter:
        engine = StrategyEngine(devices, train, total, build_model)
        loop = Loop(
            engine,
            Checkpoints(fn_args.working_dir or os.path.join(run_dir, "checkpoints")),
            reporter,
            total=total,
            eval_every=steps_between_evaluations(train, examples["train"]),
        )
        outcome = loop.run(
            lambda start_step: input_data.train_dataset(
                fn_args.train_files, transform, train, examples["train"], start_step
            ),
            input_data.eval_dataset(
                fn_args.eval_files, transform, devices.fitting_batch(train.eval_batch_size)
            )
            if examples["val"]
            else None,
        )
        record.write(
            run_dir, settings=settings, topology=devices, outcome=outcome, examples=examples
        )
        weights = engine.weights()
        export(fn_args.serving_model_dir, build_model(), weights, transform, class_names)
