"""What ``stagecraft plan`` does: build the model, plan, show."""

from __future__ import annotations

import dataclasses
import math

from stagecraft.pipeline.checks import early_checks
from stagecraft.pipeline.cli import console
from stagecraft.pipeline.cli.plan_text import plan_text
from stagecraft.pipeline.settings import SettingsError, load
from stagecraft.pipeline.settings.overrides import Override
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parallel.capabilities import capabilities
from stagecraft.trainer_module.planning import accelerators
from stagecraft.trainer_module.planning.plan import Plan
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The command line of ``stagecraft plan``, as given."""

    config: str
    overrides: tuple[str, ...]
    devices: str | None
    measure: bool
    network_gbit: float
    as_json: bool


def show(request: Request) -> int:
    """Plans and shows; the command's exit code."""
    try:
        plan, notes = _plan(request)
    except (SettingsError, UserError) as error:
        if request.as_json:
            console.say_json({"error": str(error)})
        console.error(str(error))
        return 1
    console.say(plan_text(plan), stderr=request.as_json)
    for note in notes:
        console.say(f"note: {note}", stderr=request.as_json)
    if request.as_json:
        console.say_json(dataclasses.asdict(plan))
    return 0


def _plan(request: Request) -> tuple[Plan, list[str]]:
    """The plan, and what a user has to know of the model."""
    measure = Override("--measure", ("parallel", "costs"), "measured")
    measured = (measure,) if request.measure else ()
    if not math.isfinite(request.network_gbit):
        raise UserError(
            f"--network: {request.network_gbit} is no speed of a network; give Gbit/s, such as "
            "--network 25"
        )
    settings = load(request.config, (*request.overrides, *measured))
    early_checks.check_model(settings)
    training = TrainingSettings(train=settings.train, parallel=settings.parallel)
    parallel = training.parallel
    accelerator = None
    if request.devices:
        if request.measure:
            raise UserError("--measure is for devices that are here; leave it or --devices out")
        count, accelerator = accelerators.parse(request.devices)
        there = [f"{accelerator.name}:{index}" for index in range(count)]
        devices = _first(there, parallel)

    # TensorFlow takes seconds to import: after all that can be refused without it.
    from stagecraft.pipeline.checks import classes
    from stagecraft.trainer_module.models.assemble import assemble
    from stagecraft.trainer_module.models.initial_weights.loading import Loaded
    from stagecraft.trainer_module.models.layers import dropout
    from stagecraft.trainer_module.parallel import topology
    from stagecraft.trainer_module.planning import planner

    if accelerator is None:
        if capabilities(parallel.strategy).remote_devices:
            devices = list(topology.resolve(parallel).devices)
        else:  # of one worker, and without the others
            topology.configure_devices(parallel)
            devices = list(topology.choose(parallel))
        there = topology.available(parallel)
    loaded: list[Loaded] = []
    model = assemble(
        training.train,
        classes.count(settings.data),
        precision=parallel.precision,
        on_loaded=loaded.append,
    )
    with console.progress("timing the parts of the model", stderr=True) as on_progress:
        plan = planner.make_plan(
            model,
            training,
            devices,
            available=len(there),
            accelerator=accelerator,
            network_gbit=request.network_gbit,
            on_progress=on_progress,
        )
    return plan, [*(each.note() for each in loaded), *dropout.notes(model)]


def _first(there: list[str], parallel: ParallelSettings) -> list[str]:
    needed = parallel.replicas * parallel.stages
    if needed > len(there):
        raise UserError(
            f"--devices: parallel.replicas: {parallel.replicas} × parallel.stages: "
            f"{parallel.stages} need {needed} devices for each worker, and these are {len(there)}; "
            f"use --devices {needed}x{there[0].partition(':')[0]}"
        )
    return there[:needed]
