"""TFX's entry into the trainer: wires the parts together."""

from __future__ import annotations

import functools
import os
from typing import Any

import tensorflow_transform as tft

from stagecraft.trainer_module import cluster, input_data, labels, record, topology
from stagecraft.trainer_module.assemble import assemble
from stagecraft.trainer_module.atomic_folder import disk_errors
from stagecraft.trainer_module.checkpoints import Checkpoints
from stagecraft.trainer_module.engines.factory import make_engine
from stagecraft.trainer_module.engines.parameter_server import serve
from stagecraft.trainer_module.engines.strategies import connect
from stagecraft.trainer_module.export import export
from stagecraft.trainer_module.loop import Loop, steps_between_evaluations, total_steps
from stagecraft.trainer_module.reporting import Reporter
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.timeline import Timeline


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
    train, parallel = settings.train, settings.parallel
    devices = topology.resolve(parallel)
    members = cluster.training(parallel)
    chief = members is None or members.is_chief
    if parallel.strategy == "parameter_server":
        if not chief:
            serve()
        train = train.model_copy(update={"shuffle": "stream"})  # the workers read files
    strategy = connect(devices, parallel)
    transform = tft.TFTransformOutput(fn_args.transform_graph_path)
    class_names = labels.class_names(fn_args.schema_path)
    count = input_data.count_examples
    examples = {"train": count(fn_args.train_files), "val": count(fn_args.eval_files)}

    total = total_steps(train, examples["train"])
    build_model = functools.partial(assemble, train, len(class_names), precision=parallel.precision)
    checkpoints = fn_args.working_dir or os.path.join(fn_args.model_run_dir, "checkpoints")
    run_dir = fn_args.model_run_dir
    if not chief:
        run_dir = os.path.join(run_dir, f"worker{devices.worker}")
    os.makedirs(run_dir, exist_ok=True)
    with disk_errors(run_dir), Reporter(run_dir) as reporter:
        engine = make_engine(strategy, devices, settings, total, build_model)
        loop = Loop(
            engine,
            Checkpoints(checkpoints, writes=chief),
            reporter,
            total=total,
            eval_every=steps_between_evaluations(train, examples["train"]),
            timeline=Timeline(
                parallel.timeline_step, run_dir, parallel.microbatches, parallel.accumulate
            ),
        )
        outcome = loop.run(
            lambda first: input_data.train_dataset(
                fn_args.train_files, transform, train, examples["train"], first, devices.rows
            ),
            input_data.eval_dataset(
                fn_args.eval_files,
                transform,
                devices.fitting_batch(train.eval_batch_size),
                devices.rows,
            )
            if examples["val"]
            else None,
        )
        if not chief:
            return
        record.write(
            run_dir,
            settings=settings,
            topology=devices,
            outcome=outcome,
            examples=examples,
            plan=engine.plan,
        )
        weights = engine.weights()
        export(fn_args.serving_model_dir, build_model(), weights, transform, class_names)
