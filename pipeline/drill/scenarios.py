"""The faults, one function each: inject it, and say what came of it."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import signal
import time
from collections.abc import Callable

import psutil

from stagecraft.pipeline.drill.drill import CHECKPOINT_EVERY, FAULT_AT, SERVED, STEPS, Drill
from stagecraft.pipeline.drill.faulty import strike
from stagecraft.pipeline.drill.training import Signal, Training
from stagecraft.trainer_module.processes.events import Event


@dataclasses.dataclass(frozen=True)
class Row:
    """What came of a scenario."""

    passed: bool
    detected: float | None = None
    """Seconds from the fault until it was noticed."""

    recovered: float | None = None
    """Seconds from the fault until the training was past it."""

    steps_lost: int | None = None
    """Steps done again."""

    equal: bool | None = None
    """Whether everything that was saved last is what an undisturbed training saved, bit for bit;
    None: not asked, because it was not trained to the end, or asynchronously."""

    said: str = ""
    """What the user was told; or what is wrong."""


Scenario = Callable[[Drill, str], Row]


def _in_step(role: str, number: signal.Signals, within: float) -> Scenario:
    def scenario(drill: Drill, name: str) -> Row:
        training = drill.training(name)
        training.run(send=Signal(number, role, FAULT_AT))
        return _recovered(drill, training, within)

    return scenario


def _recovered(drill: Drill, training: Training, within: float, most_lost: int = 8) -> Row:
    """Of workers in step that should have gone on as if nothing had happened."""
    equal = not training.error and training.weights() == drill.undisturbed()
    lost = training.steps_lost
    return Row(
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


def _absent(drill: Drill, name: str) -> Row:
    patience = 20
    training = drill.training(name, parallel_start_timeout_seconds=patience)
    training.run(program=drill.program(name, "absent", "worker 1"))
    row = _recovered(drill, training, within=patience + 20)
    named = "worker 1 (127.0.0.1:" in training.causes[0] if training.causes else False
    return dataclasses.replace(row, passed=row.passed and named, said=" ".join(training.causes))


def _preempted(drill: Drill, name: str) -> Row:
    training = drill.training(name)
    training.run(send=Signal(signal.SIGTERM, "worker 1", FAULT_AT))
    return _recovered(drill, training, within=5, most_lost=0)


def _before_commit(drill: Drill, name: str) -> Row:
    training = drill.training(name)
    training.run(program=drill.program(name, "before_commit", "worker 0"))
    leftovers = list(pathlib.Path(training.fn_args.working_dir).glob(".*.partial"))
    row = _recovered(drill, training, within=5)
    return dataclasses.replace(row, passed=row.passed and not leftovers)


def _truncated(drill: Drill, name: str) -> Row:
    training = drill.training(name)

    def truncate() -> None:
        store = training.checkpoints()
        for path in (store.root / str(store.steps()[-1])).glob("*.data-*"):
            os.truncate(path, path.stat().st_size // 2)

    training.run(send=Signal(signal.SIGKILL, "worker 0", FAULT_AT), on_lost=truncate)
    return _recovered(drill, training, within=5, most_lost=FAULT_AT)


def _full_disk(drill: Drill, name: str) -> Row:
    training = drill.training(name).run(program=drill.program(name, "full_disk", "worker 0"))
    told = training.error or "nothing was said"
    kept = training.checkpoints().newest()
    again = drill.training(name).run()  # there is room again
    equal = not again.error and again.weights() == drill.undisturbed()
    return Row(
        passed="disk is full" in told and kept is not None and training.restarts == 0 and equal,
        detected=training.detected,
        steps_lost=None if again.error or kept is None else 12 - again.notes()["resumed_from"],
        equal=equal,
        said=told,
    )


def _corrupt_record(drill: Drill, name: str) -> Row:
    training = drill.training(name)
    (pattern,) = training.fn_args.train_files
    folder = drill.folder / f"{name}-data"
    shutil.copytree(pathlib.Path(pattern).parent, folder)
    victim = sorted(folder.iterdir())[-1]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0xFF
    victim.write_bytes(content)
    training.fn_args.train_files = [str(folder / "*")]
    strike(str(drill.struck(name)))
    training.run()
    told = training.error or "nothing was said"
    return Row(
        passed=str(victim) in told and "byte" in told and training.restarts == 0,
        detected=training.detected,
        said=told.replace(str(drill.folder), "…"),
    )


def _nan(drill: Drill, name: str) -> Row:
    training = drill.training(name).run(program=drill.program(name, "nan", "worker 0"))
    told = training.error or "nothing was said"
    kept = training.checkpoints().newest()
    return Row(
        passed=f"at step {FAULT_AT + 1}" in told
        and training.restarts == 0
        and kept is not None
        and kept.step == FAULT_AT - FAULT_AT % CHECKPOINT_EVERY,
        said=told.replace(str(drill.folder), "…"),
    )


def _served(role: str, restarts_all: bool) -> Scenario:
    """Asynchronous: what is computed depends on who was faster, and bits are not compared."""

    def scenario(drill: Drill, name: str) -> Row:
        training = drill.training(name, SERVED)
        training.run(send=Signal(signal.SIGKILL, role, FAULT_AT))
        resumed = 0 if training.error else training.notes()["resumed_from"]
        return Row(
            passed=not training.error
            and training.restarts == 1
            and training.notes()["steps"] == STEPS
            and (resumed > 0) == restarts_all,
            detected=training.detected,
            recovered=training.recovered,
            steps_lost=training.steps_lost if restarts_all else 0,
            said=training.error or "",
        )

    return scenario


def _launcher_killed(drill: Drill, name: str) -> Row:
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
    gone, alive = psutil.wait_procs(children, timeout=10)
    seconds = time.time() - started
    for orphan in alive:
        orphan.kill()
    again = drill.training(name).run()
    equal = not again.error and again.weights() == drill.undisturbed()
    return Row(
        passed=len(gone) >= 2 and not alive and equal and again.notes()["resumed_from"] > 0,
        detected=seconds,
        equal=equal,
        said=again.error or f"{len(gone)} processes ended by themselves",
    )


def _two_runs(drill: Drill, name: str) -> Row:
    first, second = drill.training(name), drill.training(name)
    told: list[str] = []

    def start_another(event: Event) -> None:
        if event["event"] != "progress" or event["phase"] != "train" or told:
            return
        first.send_all(signal.SIGSTOP)  # else it would be done before the other has begun
        strike(str(drill.struck(name)))
        second.fn_args.model_run_dir += "-second"
        second.run()
        first.send_all(signal.SIGCONT)
        told.append(second.error or "nothing was said")

    first.run(watch=start_another)
    equal = not first.error and first.weights() == drill.undisturbed()
    return Row(
        passed=bool(told) and "is training on these checkpoints" in told[0] and equal,
        detected=second.detected,
        steps_lost=0,
        equal=equal,
        said=(told or [""])[0].replace(str(drill.folder), "…"),
    )


def _retry(drill: Drill, name: str) -> Row:
    drill.undisturbed()
    again = drill.training("undisturbed").run()
    notes = {} if again.error else again.notes()
    equal = not again.error and again.weights() == drill.undisturbed()
    return Row(
        passed=equal and again.progressed == 0 and notes["resumed_from"] == STEPS,
        steps_lost=0,
        equal=equal,
        said=again.error or f"{again.progressed} steps were trained",
    )


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)


SCENARIOS: dict[str, tuple[str, Scenario]] = {
    "worker-killed": (
        "SIGKILL of a worker in the middle of a step",
        _in_step("worker 1", signal.SIGKILL, within=5),
    ),
    "chief-killed": ("SIGKILL of the chief", _in_step("worker 0", signal.SIGKILL, within=5)),
    "worker-frozen": (
        "SIGSTOP of a worker: it is there, and does nothing",
        _in_step("worker 1", signal.SIGSTOP, within=15),
    ),
    "worker-missing": ("a worker that does not come at the start", _absent),
    "preempted": ("SIGTERM to a worker: all save, and go on at the same step", _preempted),
    "killed-before-commit": ("the chief dies with a checkpoint written, not named", _before_commit),
    "checkpoint-truncated": ("half of the newest checkpoint is gone", _truncated),
    "disk-full": ("no space left for a checkpoint; then there is again", _full_disk),
    "corrupt-record": ("a flipped byte in a TFRecord: named, and not tried again", _corrupt_record),
    "nan-loss": ("a loss that is no number: stops, and keeps the last good checkpoint", _nan),
    "ps-killed": ("SIGKILL of a parameter server", _served("ps 0", restarts_all=True)),
    "served-worker-killed": (
        "SIGKILL of a parameter server's worker: the others go on",
        _served("worker 1", restarts_all=False),
    ),
    "launcher-killed": ("SIGKILL of who started them: nothing is left running", _launcher_killed),
    "two-runs": ("a second training on the same checkpoints", _two_runs),
    "retry-after-success": ("a training that is done is started again", _retry),
}
"""Name -> what it is, and how it is done."""
