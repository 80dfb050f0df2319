"""TFX's entry into the trainer: wires the parts together."""

from __future__ import annotations

import os
from typing import Any

from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.atomic_folder import disk_errors
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluations
from stagecraft.trainer_module.data import input_data
from stagecraft.trainer_module.engines.factory import make_engine
from stagecraft.trainer_module.engines.parameter_server import serve
from stagecraft.trainer_module.engines.strategies import connect
from stagecraft.trainer_module.parallel import cluster, topology
from stagecraft.trainer_module.processes import events, preemption, rendezvous
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings
from stagecraft.trainer_module.training import leftovers, record
from stagecraft.trainer_module.training.context import Job
from stagecraft.trainer_module.training.evaluator import evaluate_all
from stagecraft.trainer_module.training.export import export
from stagecraft.trainer_module.training.loop import Loop
from stagecraft.trainer_module.training.monitoring import phases
from stagecraft.trainer_module.training.monitoring.profile import Profile
from stagecraft.trainer_module.training.monitoring.progress import Reporter
from stagecraft.trainer_module.training.monitoring.timeline import Timeline
from stagecraft.trainer_module.training.steps import steps_between_evaluations


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
    if cluster.is_evaluator(parallel):
        _evaluate(fn_args, settings)
        return
    devices = topology.resolve(parallel)
    members = cluster.training(parallel)
    chief = members is None or members.is_chief
    if parallel.strategy == "parameter_server" and not chief:
        events.emit("started")
        serve()
    with rendezvous.wait_for_peers(members, parallel.start_timeout_seconds):
        strategy = connect(devices, parallel)
    events.emit("started")
    job, told = Job(fn_args, settings), phases.Phases()
    run_dir = fn_args.model_run_dir
    if not chief:
        run_dir = os.path.join(run_dir, f"worker{devices.worker}")
    os.makedirs(run_dir, exist_ok=True)
    with (
        leftovers.given_up(),
        disk_errors(run_dir),
        Reporter(run_dir) as reporter,
        Profile(parallel.profile_steps, run_dir) as profile,
        Checkpoints(job.checkpoints, writes=chief, keep=train.keep) as checkpoints,
    ):
        engine = make_engine(strategy, devices, settings, job.total, job.build_model)
        loop = Loop(
            engine,
            checkpoints,
            reporter,
            total=job.total,
            eval_every=steps_between_evaluations(train, job.examples["train"]),
            checkpoint_every=train.checkpoint_every,
            settings=settings.flat(),
            chief=chief,
            timeline=Timeline(
                parallel.timeline_step, run_dir, parallel.microbatches, parallel.accumulate
            ),
            profile=profile,
            evaluations=Evaluations(job.checkpoints) if parallel.evaluator else None,
            stop=preemption.requested,
            on_phase=told.begin,
        )
        with preemption.stoppable():
            outcome = loop.run(
                lambda first: input_data.train_dataset(
                    fn_args.train_files,
                    job.transform,
                    train,
                    job.examples["train"],
                    first,
                    devices.rows,
                ),
                None if parallel.evaluator else job.val_data(devices),
            )
        if chief:
            told.begin(phases.EXPORT)
            reporter.exporting()
            loop.curve.write(run_dir)
            export(
                fn_args.serving_model_dir,
                job.build_blank(),
                engine.weights(),
                job.transform,
                job.class_names,
            )
            record.write(
                run_dir,
                settings=settings,
                topology=devices,
                outcome=outcome,
                examples=job.examples,
                plan=engine.plan,
                loaded=job.loaded,
                seconds=told.seconds(),
            )
        # Whoever left before would be a lost peer to the others.
        engine.sum_over_workers([0.0])


def _evaluate(fn_args: Any, settings: TrainingSettings) -> None:
    """What the process does that evaluates, and does not train."""
    alone = ParallelSettings(precision=settings.parallel.precision, jit=settings.parallel.jit)
    devices = topology.resolve(alone)
    job = Job(fn_args, settings)
    engine = make_engine(
        connect(devices, alone),
        devices,
        TrainingSettings(train=settings.train, parallel=alone),
        job.total,
        job.build_blank,
    )
    events.emit("started")
    with Reporter(os.path.join(fn_args.model_run_dir, "evaluator")) as reporter:
        evaluate_all(
            engine,
            job.val_data(devices),
            Checkpoints(job.checkpoints, writes=False),
            reporter,
            resume.resolved(settings.flat(), job.total),
            phases.Phases().begin,
        )
