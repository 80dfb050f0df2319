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


def test_no_step_for_long(life: Watch, clock: Clock) -> None:
    life.note("worker 1", STEP)
    assert _live(life, clock, 120) == ""
    assert _live(life, clock, 1) == "worker 1 took no step for 121 s"


def test_long_steps_are_given_longer(life: Watch, clock: Clock) -> None:
    for _ in range(2):
        life.note("worker 1", STEP)
        _live(life, clock, 30)
    assert _live(life, clock, 19 * 30) == ""
    assert "took no step" in _live(life, clock, 1)


def test_saving_and_evaluating_may_take_their_time(life: Watch, clock: Clock) -> None:
    life.note("worker 1", STEP)
    life.note("worker 1", {"event": "phase", "phase": "save"})
    assert _live(life, clock, 1000) == ""


def test_nothing_is_expected_of_one_that_has_ended(life: Watch, clock: Clock) -> None:
    life.end("worker 1")
    life.note("worker 1", BEAT)
    clock.now += 1000
    assert life.silent() is None
