import pytest

from stagecraft.trainer_module.processes import liveness
from stagecraft.trainer_module.processes.liveness import LivenessMonitor

BEAT, START, STEP = ({"event": name} for name in ("beat", "started", "progress"))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> LivenessMonitor:
    monitor = LivenessMonitor(10, clock)
    monitor.begin("worker 1")
    return monitor


def _wait(monitor: LivenessMonitor, clock: Clock, seconds: int, *, beats: bool = False) -> str:
    """The last verdict after some seconds, with or without heartbeats."""
    verdict = None
    for _ in range(seconds):
        clock.now += 1
        if beats:
            monitor.record("worker 1", BEAT)
        verdict = monitor.find_frozen()
    return " ".join(verdict or "")


def _live(monitor: LivenessMonitor, clock: Clock, seconds: int) -> str:
    return _wait(monitor, clock, seconds, beats=True)


def test_silence(monitor, clock):
    monitor.record("worker 1", START)
    assert _wait(monitor, clock, 10) == ""
    assert "worker 1" in _wait(monitor, clock, 1)


def test_a_pause_of_the_monitor_is_no_silence(monitor, clock):
    monitor.record("worker 1", START)
    clock.now += 100
    assert monitor.find_frozen() is None
    assert _wait(monitor, clock, 10) == ""
    assert _wait(monitor, clock, 1).startswith("worker 1 ")


def test_imports_may_hold_up_everything(monitor, clock):
    assert _wait(monitor, clock, 10 * liveness.BEFORE_START) == ""
    assert _wait(monitor, clock, 1).startswith("worker 1 ")


def _step(monitor: LivenessMonitor, clock: Clock, seconds: int) -> None:
    _live(monitor, clock, seconds)
    monitor.record("worker 1", STEP)


@pytest.fixture
def training(monitor: LivenessMonitor) -> LivenessMonitor:
    monitor.record("worker 1", START)
    monitor.record("worker 1", {"event": "phase", "phase": "train"})
    return monitor


def test_no_step_for_long(training, clock):
    _step(training, clock, 2)
    assert _live(training, clock, 120) == ""
    assert "worker 1" in _live(training, clock, 1)


def test_long_steps_have_a_longer_limit(training, clock):
    _step(training, clock, 130)
    assert _live(training, clock, 20 * 130) == ""
    assert "took no step" in _live(training, clock, 1)


@pytest.mark.parametrize("phase", ["evaluate", "save", "done"])
def test_other_phases_have_the_longest_limit(training, clock, phase):
    _step(training, clock, 2)
    training.record("worker 1", {"event": "phase", "phase": phase})
    assert _live(training, clock, 3600) == ""
    assert "worker 1" in _live(training, clock, 1)


def test_first_steps_have_the_longest_limit(training, clock):
    assert _live(training, clock, 3600) == ""
    assert "worker 1" in _live(training, clock, 1)


def test_a_server_may_wait_for_ever(monitor, clock):
    monitor.record("worker 1", START)
    assert _live(monitor, clock, 10_000) == ""


def test_an_ended_process_is_not_monitored(monitor, clock):
    monitor.end("worker 1")
    monitor.record("worker 1", BEAT)
    clock.now += 1000
    assert monitor.find_frozen() is None
