"""Who is frozen, who hangs, and who is only busy."""

from __future__ import annotations

import pytest

from stagecraft.trainer_module.processes import watch
from stagecraft.trainer_module.processes.watch import Watch

BEAT, START, STEP = ({"event": name} for name in ("beat", "started", "progress"))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def life(clock: Clock) -> Watch:
    watched = Watch(10, clock)
    watched.begin("worker 1")
    return watched


def _live(life: Watch, clock: Clock, seconds: int) -> str:
    """It beats; what is said last."""
    said = None
    for _ in range(seconds):
        clock.now += 1
        life.note("worker 1", BEAT)
        said = life.silent()
    return " ".join(said or "")


def _wait(life: Watch, clock: Clock, seconds: int) -> str:
    """It does not; what is said last."""
    said = None
    for _ in range(seconds):
        clock.now += 1
        said = life.silent()
    return " ".join(said or "")


def test_silence(life: Watch, clock: Clock) -> None:
    life.note("worker 1", START)
    assert _wait(life, clock, 10) == ""
    assert _wait(life, clock, 1).startswith("worker 1 gave no sign of life for 11 s")


def test_who_did_not_listen_has_not_heard_silence(life: Watch, clock: Clock) -> None:
    life.note("worker 1", START)
    clock.now += 100
    assert life.silent() is None
    assert _wait(life, clock, 10) == ""
    assert "no sign of life" in _wait(life, clock, 1)


def test_imports_may_hold_up_everything(life: Watch, clock: Clock) -> None:
    assert _wait(life, clock, 10 * watch.BEFORE_START) == ""
    assert "no sign of life" in _wait(life, clock, 1)


def _step(life: Watch, clock: Clock, seconds: int) -> None:
    _live(life, clock, seconds)
    life.note("worker 1", STEP)


@pytest.fixture
def training(life: Watch) -> Watch:
    life.note("worker 1", START)
    life.note("worker 1", {"event": "phase", "phase": "train"})
    return life


def test_no_step_for_long(training: Watch, clock: Clock) -> None:
    _step(training, clock, 2)
    assert _live(training, clock, 120) == ""
    assert _live(training, clock, 1) == "worker 1 took no step for 121 s"


def test_long_steps_are_given_longer(training: Watch, clock: Clock) -> None:
    _step(training, clock, 130)
    assert _live(training, clock, 20 * 130) == ""
    assert "took no step" in _live(training, clock, 1)


@pytest.mark.parametrize("phase", ["evaluate", "save", "done"])
def test_the_rest_may_take_its_time(training: Watch, clock: Clock, phase: str) -> None:
    _step(training, clock, 2)
    training.note("worker 1", {"event": "phase", "phase": phase})
    assert _live(training, clock, 3600) == ""
    assert _live(training, clock, 1) == "worker 1 came no further for 3601 s"


def test_the_first_steps_may_take_their_time(training: Watch, clock: Clock) -> None:
    assert _live(training, clock, 3600) == ""
    assert _live(training, clock, 1) == "worker 1 took no step for 3601 s"


def test_who_serves_waits_for_ever(life: Watch, clock: Clock) -> None:
    life.note("worker 1", START)
    assert _live(life, clock, 10_000) == ""


def test_nothing_is_expected_of_one_that_has_ended(life: Watch, clock: Clock) -> None:
    life.end("worker 1")
    life.note("worker 1", BEAT)
    clock.now += 1000
    assert life.silent() is None
