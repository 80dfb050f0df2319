"""The scenarios: each injects a fault into a training and returns the result."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

from faults.faulty_worker import strike
from faults.trainings import (
    CHECKPOINT_EVERY,
    FAULT_AT,
    PARAMETER_SERVER,
    STEPS,
    Drill,
    Signal,
    Training,
)
from stagecraft.trainer_module.processes.events import Event


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a scenario."""

    passed: bool
    detected: float | None = None
    """Seconds from the fault until its detection."""

    recovered: float | None = None
    """Seconds from the fault until the training passed the step of the fault."""

    steps_lost: int | None = None
    equal: bool | None = None
    """Whether the last checkpoint equals that of an undisturbed training, bit for bit. None if the
    training was asynchronous or not complete."""

    said: str = ""


Run = Callable[[Drill, str], Result]


class Scenario(NamedTuple):
    """A fault, and the function that injects it."""

    description: str
    run: Run


SCENARIOS: dict[str, Scenario] = {}


def _scenario(name: str, description: str) -> Callable[[Run], Run]:
    """Adds the decorated function to the scenarios."""

    def add(run: Run) -> Run:
        SCENARIOS[name] = Scenario(description, run)
        return run

    return add


def _recovered(drill: Drill, training: Training, within: float, most_lost: int = 8) -> Result:
    """The result of synchronous workers that should recover without a trace."""
    equal = not training.error and training.weights() == drill.undisturbed()
    lost = training.steps_lost
    return Result(
        passed=equal
        and training.restarts == 1
        and training.detected is not None
        and training.detected < within
        and lost is not None
        and lost <= most_lost,
        detected=training.detected,
        recovered=training.recovered,
        steps_lost=lost,
        equal=equal,
        said=training.error or "",
    )


def _synchronous(role: str, number: signal.Signals, within: float) -> Run:
    def run(drill: Drill, name: str) -> Result:
        training = drill.training(name)
        training.run(send=Signal(number, role, FAULT_AT))
        return _recovered(drill, training, within)

    return run


_scenario("worker-killed", "SIGKILL of a worker in the middle of a step")(
    _synchronous("worker 1", signal.SIGKILL, within=5)
)
_scenario("chief-killed", "SIGKILL of the chief")(
    _synchronous("worker 0", signal.SIGKILL, within=5)
)
_scenario("worker-frozen", "SIGSTOP of a worker: it exists, but does nothing")(
    _synchronous("worker 1", signal.SIGSTOP, within=15)
)


@_scenario("worker-missing", "a worker that does not join at the start")
def _absent(drill: Drill, name: str) -> Result:
    patience = 20
    training = drill.training(name, parallel_start_timeout_seconds=patience)
    training.run(program=drill.program(name, "absent", "worker 1"))
    result = _recovered(drill, training, within=patience + 20)
    named = "worker 1 (127.0.0.1:" in training.causes[0] if training.causes else False
    return dataclasses.replace(
        result, passed=result.passed and named, said=" ".join(training.causes)
    )


@_scenario("preempted", "SIGTERM to a worker: all save, and resume at the same step")
def _preempted(drill: Drill, name: str) -> Result:
    training = drill.training(name)
    training.run(send=Signal(signal.SIGTERM, "worker 1", FAULT_AT))
    return _recovered(drill, training, within=5, most_lost=0)


@_scenario("killed-before-commit", "the chief dies between writing and naming a checkpoint")
def _before_commit(drill: Drill, name: str) -> Result:
    training = drill.training(name)
    training.run(program=drill.program(name, "before_commit", "worker 0"))
    leftovers = list(pathlib.Path(training.given.working_dir).glob(".*.partial"))
    result = _recovered(drill, training, within=5)
    return dataclasses.replace(result, passed=result.passed and not leftovers)


@_scenario("checkpoint-truncated", "half of the newest checkpoint is missing")
def _truncated(drill: Drill, name: str) -> Result:
    training = drill.training(name)

    def truncate() -> None:
        store = training.checkpoints()
        for path in (store.root / str(store.steps()[-1])).glob("*.data-*"):
            os.truncate(path, path.stat().st_size // 2)

    training.run(send=Signal(signal.SIGKILL, "worker 0", FAULT_AT), on_lost=truncate)
    return _recovered(drill, training, within=5, most_lost=FAULT_AT)


@_scenario("disk-full", "no space for a checkpoint, then space again")
def _full_disk(drill: Drill, name: str) -> Result:
    training = drill.training(name).run(program=drill.program(name, "full_disk", "worker 0"))
    message = training.error or "no error"
    kept = training.checkpoints().newest()
    again = drill.training(name).run()  # with free space again
    equal = not again.error and again.weights() == drill.undisturbed()
    return Result(
        passed="disk is full" in message and kept is not None and training.restarts == 0 and equal,
        detected=training.detected,
        steps_lost=None if again.error or kept is None else 12 - again.record()["resumed_from"],
        equal=equal,
        said=message,
    )


@_scenario("corrupt-record", "a flipped byte in a TFRecord: the error names it, without a retry")
def _corrupt_record(drill: Drill, name: str) -> Result:
    training = drill.training(name)
    (pattern,) = training.given.train_files
    folder = drill.folder / f"{name}-data"
    shutil.copytree(pathlib.Path(pattern).parent, folder)
    victim = sorted(folder.iterdir())[-1]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0xFF
    victim.write_bytes(content)
    training.given.train_files = [str(folder / "*")]
    strike(str(drill.struck(name)))
    training.run()
    message = training.error or "no error"
    return Result(
        passed=str(victim) in message and "byte" in message and training.restarts == 0,
        detected=training.detected,
        said=message.replace(str(drill.folder), "…"),
    )


@_scenario("nan-loss", "a loss that is NaN: the training stops, and keeps the last good checkpoint")
def _nan(drill: Drill, name: str) -> Result:
    training = drill.training(name).run(program=drill.program(name, "nan", "worker 0"))
    message = training.error or "no error"
    kept = training.checkpoints().newest()
    return Result(
        passed=f"at step {FAULT_AT + 1}" in message
        and training.restarts == 0
        and kept is not None
        and kept.step == FAULT_AT - FAULT_AT % CHECKPOINT_EVERY,
        said=message.replace(str(drill.folder), "…"),
    )


def _asynchronous(role: str, restarts_all: bool) -> Run:
    """Compares no weights: they depend on the speed of the workers."""

    def run(drill: Drill, name: str) -> Result:
        training = drill.training(name, PARAMETER_SERVER)
        training.run(send=Signal(signal.SIGKILL, role, FAULT_AT))
        resumed = 0 if training.error else training.record()["resumed_from"]
        return Result(
            passed=not training.error
            and training.restarts == 1
            and training.record()["steps"] == STEPS
            and (resumed > 0) == restarts_all,
            detected=training.detected,
            recovered=training.recovered,
            steps_lost=training.steps_lost if restarts_all else 0,
            said=training.error or "",
        )

    return run


_scenario("ps-killed", "SIGKILL of a parameter server")(_asynchronous("ps 0", restarts_all=True))
_scenario("served-worker-killed", "SIGKILL of a parameter server's worker: the others continue")(
    _asynchronous("worker 1", restarts_all=False)
)


def _runs(process: psutil.Process) -> bool:
    """Whether a process has not ended; a zombie has."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@_scenario("launcher-killed", "SIGKILL of the launcher: no process stays")
def _launcher_killed(drill: Drill, name: str) -> Result:
    training = drill.training(name)
    launcher = training.start()
    try:
        store = training.checkpoints()
        _wait_for(lambda: len(store.steps()) >= 2, 120)
        children = psutil.Process(launcher.pid).children(recursive=True)
        strike(str(drill.struck(name)))
        started = time.time()
    finally:
        launcher.kill()
        launcher.wait()
    while (alive := [*filter(_runs, children)]) and time.time() < started + 10:
        time.sleep(0.1)
    seconds = time.time() - started
    for orphan in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            orphan.kill()
    again = drill.training(name).run()
    equal = not again.error and again.weights() == drill.undisturbed()
    return Result(
        passed=len(children) >= 2 and not alive and equal and again.record()["resumed_from"] > 0,
        detected=seconds,
        equal=equal,
        said=again.error or f"{len(children) - len(alive)} processes ended by themselves",
    )


@_scenario("two-runs", "a second training run on the same checkpoints")
def _two_runs(drill: Drill, name: str) -> Result:
    first, second = drill.training(name), drill.training(name)
    messages: list[str] = []

    def start_another(event: Event) -> None:
        if event["event"] != "progress" or event["phase"] != "train" or messages:
            return
        first.send_all(signal.SIGSTOP)  # so that it cannot end before the other begins
        strike(str(drill.struck(name)))
        second.given.model_run_dir += "-second"
        second.run()
        first.send_all(signal.SIGCONT)
        messages.append(second.error or "no error")

    first.run(watch=start_another)
    equal = not first.error and first.weights() == drill.undisturbed()
    return Result(
        passed=bool(messages) and "only one training run can use them" in messages[0] and equal,
        detected=second.detected,
        steps_lost=0,
        equal=equal,
        said=(messages or [""])[0].replace(str(drill.folder), "…"),
    )


@_scenario("retry-after-success", "a restart of a complete training run")
def _retry(drill: Drill, name: str) -> Result:
    drill.undisturbed()
    again = drill.training("undisturbed").run()
    record = {} if again.error else again.record()
    equal = not again.error and again.weights() == drill.undisturbed()
    return Result(
        passed=equal and again.progressed == 0 and record["resumed_from"] == STEPS,
        steps_lost=0,
        equal=equal,
        said=again.error or f"the training reported {again.progressed} times",
    )


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
