"""The ``run_fn`` that TFX's Trainer calls: builds the parts of a training and runs them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from tensorflow.python.framework import ops

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.atomic_folder import disk_errors
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluations
from stagecraft.trainer_module.data import input_data
from stagecraft.trainer_module.engines.factory import connect, join, make_engine
from stagecraft.trainer_module.models.initial_weights import source, transform_graph_match
from stagecraft.trainer_module.optimization.make_loss import make_loss
from stagecraft.trainer_module.parallel import cluster, topology
from stagecraft.trainer_module.parallel.topology import configure_devices
from stagecraft.trainer_module.planning import measure
from stagecraft.trainer_module.planning.search import automatic
from stagecraft.trainer_module.processes import events, preemption
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings
from stagecraft.trainer_module.training import record
from stagecraft.trainer_module.training.callbacks import Callbacks
from stagecraft.trainer_module.training.context import TrainingContext
from stagecraft.trainer_module.training.early_stopping import Watch
from stagecraft.trainer_module.training.evaluator import evaluate_all
from stagecraft.trainer_module.training.export import check_keras_file, export
from stagecraft.trainer_module.training.loop import Loop
from stagecraft.trainer_module.training.monitoring.profile import Profile
from stagecraft.trainer_module.training.monitoring.progress import EXPORT, Phases, Reporter
from stagecraft.trainer_module.training.monitoring.timeline import Timeline

_CUSTOM_GRADIENT = "CustomGradient-"
"""``tensorflow/python/ops/custom_gradient.py``, ``generate_name``."""


def run_fn(fn_args: Any) -> None:
    """Trains on ``train_files``, selects on ``eval_files``, exports to ``serving_model_dir``.

    Args:
        fn_args: TFX's ``FnArgs``. ``custom_config["settings"]`` is ``TrainingSettings.flat()``.
            ``working_dir`` is the folder of this training's checkpoints, which survives a retry.
            TFX's own Trainer does not set it; the checkpoints are then in ``model_run_dir``.

    Raises:
        UserError: an error in data, model, disk, devices or loss.
    """
    flat, start = fn_args.custom_config["settings"], fn_args.custom_config.get(record.START)
    settings = TrainingSettings.from_flat(flat).resolved(fn_args.schema_path)
    train, parallel = settings.train, settings.parallel
    weights = fn_args.custom_config.get(input_data.WEIGHTS, ())
    if train.window_weights and not weights:
        problem = "needs Stagecraft's Trainer, which knows the span of each file"
        raise SettingError("train.window_weights", list(train.window_weights), problem)
    if cluster.is_evaluator(parallel):
        _evaluate(fn_args, settings)
        return
    settings, search = _with_topology(fn_args, settings)
    parallel = settings.parallel
    devices, chief, connected = join(parallel)
    context, timer = TrainingContext(fn_args, settings), Phases()
    settings = context.settings
    keeps_state = fn_args.custom_config.get(source.TRAINING_STATE, False)
    if chief:
        context.check_loss()
        context.check_constant()
        context.check_views()
    if chief and train.export_keras:
        check_keras_file(context.build_blank())
    run_dir = fn_args.model_run_dir
    if not chief:
        run_dir = os.path.join(run_dir, f"worker{devices.worker}")
    os.makedirs(run_dir, exist_ok=True)
    with (
        cleaned_gradient_registry(),
        disk_errors(run_dir),
        Reporter(run_dir, context.task.noun) as reporter,
        Profile(parallel.profile_steps, run_dir) as profile,
        Checkpoints(context.checkpoints, writes=chief, keep=train.keep) as checkpoints,
    ):
        choice = measure.choose(
            settings,
            devices,
            lambda name: context.build_blank(precision=name),
            checkpoints.continued(settings.flat(), context.total).get("parallel_precision"),
        )
        settings = measure.applied(settings, choice)
        parallel, context.precision = settings.parallel, settings.parallel.precision
        if choice:
            reporter.chosen(choice.precision, choice.reason)
        engine = make_engine(connected, devices, settings, context.total, context.build_model)
        if train.warm_start and train.warm_start.optimizer_state:
            context.continue_from(train.initial_weights, engine)
        if chief:
            transform_graph_match.keep(context.transform, context.checkpoints)
        loop = Loop(
            engine,
            checkpoints,
            reporter,
            total=context.total,
            eval_every=train.steps_between_evaluations(context.examples["train"]),
            checkpoint_every=train.checkpoint_every,
            settings=settings.flat(),
            rank=context.task.ranked,
            chief=chief,
            timeline=Timeline(
                parallel.timeline_step,
                run_dir,
                parallel.microbatches,
                parallel.stages,
                parallel.virtual_stages,
                parallel.accumulate,
            ),
            profile=profile,
            watch=Watch(train, context.task),
            callbacks=Callbacks(
                train.callbacks, train.steps_of_epoch(context.examples["train"]), chief
            ),
            evaluations=Evaluations(context.checkpoints) if parallel.evaluator else None,
            stop=preemption.requested,
            on_phase=timer.begin,
        )
        with preemption.stoppable():
            outcome = loop.run(
                lambda first: input_data.train_dataset(
                    fn_args.train_files,
                    context.transform,
                    train,
                    context.examples["train"],
                    first,
                    devices.rows,
                    context.task,
                    epochs_before=context.epochs(engine.steps_before),
                    weights=weights,
                ),
                None if parallel.evaluator else context.val_data(devices),
            )
        # On all workers, which may hold parts of it.
        state = engine.state() if keeps_state else {}
        if chief:
            timer.begin(EXPORT)
            reporter.exporting()
            loop.curve.write(run_dir)
            export(
                fn_args.serving_model_dir,
                context.build_blank(),
                engine.weights(),
                context.transform,
                context.task,
                context.schema_path,
                losses=make_loss(context.task, train),
                constant=context.constant_sums(),
                with_keras=train.export_keras,
                test_time_augment=train.test_time_augment,
            )
            if keeps_state:
                context.keep_state(fn_args.serving_model_dir, state, engine.steps_before)
            record.write(
                run_dir,
                settings=settings,
                topology=devices,
                outcome=outcome,
                examples=context.examples,
                plan=engine.plan,
                search=search,
                loaded=context.loaded,
                choice=choice,
                seconds=timer.seconds(),
                start=record.Start(**start) if start else None,
            )
        # Barrier: a process that exits early looks like a crash to its peers.
        engine.sum_over_workers([0.0])


def _with_topology(fn_args: Any, settings: TrainingSettings) -> automatic.Resolved:
    """The settings with a topology for ``auto``: that of the checkpoints, or the fastest."""
    if not settings.parallel.found.resolves:
        return automatic.Resolved(settings, None)
    configure_devices(settings.parallel)
    context = TrainingContext(fn_args, settings)
    checkpoints = Checkpoints(context.checkpoints, writes=False)
    earlier = checkpoints.continued(settings.flat(), context.total)
    return automatic.resolved(settings, context.build_blank, earlier)


def _evaluate(fn_args: Any, settings: TrainingSettings) -> None:
    """Runs the evaluator process, which does not train."""
    alone = ParallelSettings(precision=settings.parallel.precision, jit=settings.parallel.jit)
    devices = topology.resolve(alone)
    context = TrainingContext(fn_args, settings)
    settings = context.settings
    engine = make_engine(
        connect(devices, alone),
        devices,
        settings.model_copy(update={"parallel": alone}),
        context.total,
        context.build_blank,
    )
    events.emit("started")
    with Reporter(os.path.join(fn_args.model_run_dir, "evaluator")) as reporter:
        evaluate_all(
            engine,
            context.val_data(devices),
            Checkpoints(context.checkpoints, writes=False),
            reporter,
            resume.resolved(settings.flat(), context.total),
            Phases().begin,
        )


@contextlib.contextmanager
def cleaned_gradient_registry() -> Iterator[None]:
    """Frees, after the block, the graphs that TensorFlow's registry of gradients keeps.

    ``tf.custom_gradient``, which an all-reduce also uses, registers a function under a new name in
    each graph that it is traced into, and the function holds the graph. In a process that runs
    several trainings, this adds up to megabytes for each. The graphs of the block still run;
    TensorFlow can no longer differentiate a call of one.
    """
    registered = ops.gradient_registry._registry
    before = set(registered)
    try:
        yield
    finally:
        for name in [name for name in registered if name.startswith(_CUSTOM_GRADIENT)]:
            if name not in before:
                del registered[name]
