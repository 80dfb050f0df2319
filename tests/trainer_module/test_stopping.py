import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from counting import SETTINGS, CountingEngine, QuietReporter, Watch, train

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.engines.step_metrics import Metrics
from stagecraft.trainer_module.processes import preemption
from stagecraft.trainer_module.training import loop
from stagecraft.trainer_module.training.record import Outcome


class StopAt:
    """Says so once the engine has come to ``step``."""

    def __init__(self, engine: CountingEngine, step: int):
        self._engine, self._step = engine, step

    def __call__(self) -> bool:
        return self._engine.step >= self._step


@pytest.mark.parametrize("step", [0, 3, 4, 7, 9])
def test_a_training_that_is_told_to_stop_saves_and_goes_on_from_there(tmp_path, step):
    accuracies = {4: 0.9, 8: 0.2, 10: 0.3}
    # The timeline makes a call end at the step.
    engine = CountingEngine(accuracies)
    with pytest.raises(loop.Preempted) as stopped:
        train(engine, tmp_path, stop=StopAt(engine, step), timeline=Watch(step + 1, engine))
    assert stopped.value.step == step
    assert Checkpoints(tmp_path).steps()[-1] == step
    engine, reporter = CountingEngine(accuracies), QuietReporter()
    outcome = train(engine, tmp_path, reporter)
    assert (outcome.resumed_from, outcome.steps) == (step, 10)
    assert reporter.resumes == [(step, 10)]
    assert reporter.evaluations == [4, 8, 10]
    assert sum(engine.calls) == 10 - step
    assert outcome.best is not None and outcome.best.step == engine.weight == 4


def test_what_is_told_to_stop_at_the_start_saves_nothing_new(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(CountingEngine({4: 0.1, 8: 0.2}, fails_at=9), tmp_path)
    before = (tmp_path / "8").stat().st_mtime_ns
    with pytest.raises(loop.Preempted):
        train(CountingEngine({}), tmp_path, stop=lambda: True)
    assert Checkpoints(tmp_path).steps() == [4, 8]
    assert (tmp_path / "8").stat().st_mtime_ns == before


def test_a_training_that_has_come_to_its_end_does_not_stop(tmp_path):
    engine = CountingEngine({4: 0.1, 8: 0.2, 10: 0.3})
    assert train(engine, tmp_path, stop=StopAt(engine, 10)).steps == 10
    reporter = QuietReporter()
    train(CountingEngine({}), tmp_path, reporter)
    assert reporter.resumes == [(10, 10)], "also where nothing is left"


class Asking(CountingEngine):
    """Its training is asked to end, as by Ctrl-C, in the call that comes to ``step``."""

    def __init__(self, step: int):
        super().__init__({4: 0.1, 8: 0.2, 10: 0.3})
        self._asked_at = step

    def train(self, batches: Iterator[int], steps: int) -> Metrics:
        metrics = super().train(batches, steps)
        if self.step == self._asked_at:
            assert preemption.request()
        return metrics


@pytest.mark.parametrize("step", [3, 10])
def test_a_training_in_the_pipelines_process_saves_when_it_is_interrupted(tmp_path, step):
    engine = Asking(step)
    with pytest.raises(KeyboardInterrupt), preemption.stoppable():
        train(engine, tmp_path, stop=preemption.requested, timeline=Watch(min(step + 1, 9), engine))
    assert Checkpoints(tmp_path).steps()[-1] == step
    assert not preemption.requested(), "the next training in this process is not meant"
    assert not preemption.request(), "nothing trains"
    engine = CountingEngine({4: 0.1, 8: 0.2, 10: 0.3})
    with preemption.stoppable():
        assert train(engine, tmp_path, stop=preemption.requested).resumed_from == step


class Worker(CountingEngine):
    """One of several in the threads of a test, which wait for each other to sum."""

    def __init__(self, meet: threading.Barrier, given: dict[int, list[float]], number: int):
        super().__init__({4: 0.1, 8: 0.2, 10: 0.3})
        self._meet, self._given, self._number = meet, given, number

    def sum_over_workers(self, values: Sequence[float]) -> list[float]:
        self._given[self._number] = list(values)
        self._meet.wait(60)
        sums = [sum(column) for column in zip(*self._given.values(), strict=True)]
        self._meet.wait(60)
        return sums


def _run_workers(run: Callable[[Worker, bool], Any]) -> list[Any]:
    """What two workers, the first one the chief, come to: an outcome or an error."""
    meet, given = threading.Barrier(2), {}
    ends: list[Any] = [None, None]

    def work(number: int) -> None:
        try:
            ends[number] = run(Worker(meet, given, number), number == 0)
        except Exception as error:
            ends[number] = error

    threads = [
        threading.Thread(target=work, args=[number], name=f"worker {number}") for number in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def test_all_workers_stop_when_one_is_told_to_and_take_the_chiefs_steps(tmp_path, monkeypatch):
    class FixedPace(loop.Pace):
        """The workers measure differently."""

        def __init__(self, *args: Any):
            super().__init__(*args)
            self.steps_per_call = 1 if threading.current_thread().name == "worker 0" else 4

        def add(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(loop, "Pace", FixedPace)
    engines = {}

    def run(engine: Worker, chief: bool) -> Outcome:
        engines[chief] = engine
        told = (lambda: False) if chief else StopAt(engine, 3)
        return train(engine, tmp_path, chief=chief, stop=told)

    stopped = _run_workers(run)
    assert [type(end) for end in stopped] == [loop.Preempted] * 2, stopped
    assert [end.step for end in stopped] == [3, 3]
    assert engines[True].calls == engines[False].calls == [1, 1, 1]
    assert Checkpoints(tmp_path).steps() == [3]


def test_all_workers_go_on_from_what_the_chief_can_read(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(CountingEngine({4: 0.1, 8: 0.2}, fails_at=9), tmp_path)
    ends = _run_workers(lambda engine, chief: train(engine, tmp_path, chief=chief))
    assert [end.resumed_from for end in ends] == [8, 8]
    assert [end.best.step for end in ends] == [10, 10]


def test_a_worker_that_does_not_see_the_chiefs_checkpoints_says_so(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(CountingEngine({4: 0.1}, fails_at=5), tmp_path / "0")

    class Alone(CountingEngine):
        def sum_over_workers(self, values: Sequence[float]) -> list[float]:
            return [4.0]

    with pytest.raises(UserError, match="1/4: .*all workers share"):
        train(Alone({}), tmp_path / "1", chief=False)


def test_other_settings_refuse_what_is_not_finished(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(CountingEngine({4: 0.1}, fails_at=5), tmp_path)
    other = SETTINGS | {"train_learning_rate": 0.2}
    with pytest.raises(UserError, match="beginning"):
        train(CountingEngine({}), tmp_path, settings=other)
    with pytest.raises(UserError, match="beginning"):
        train(CountingEngine({}), tmp_path, total=12)
    assert Checkpoints(tmp_path).steps() == [4]
    harmless = SETTINGS | {"train_eval_batch_size": 3, "parallel_strategy": "mirrored"}
    engine = CountingEngine({8: 0.2, 10: 0.3})
    assert train(engine, tmp_path, settings=harmless).resumed_from == 4


def test_other_settings_start_over_what_is_finished(tmp_path, caplog):
    accuracies = {4: 0.1, 8: 0.2, 10: 0.3}
    train(CountingEngine(accuracies), tmp_path)
    other = SETTINGS | {"train_learning_rate": 0.2}
    with caplog.at_level(logging.INFO):
        outcome = train(CountingEngine(accuracies), tmp_path, settings=other)
    assert sum("learning_rate" in text for text in caplog.messages) == 1
    assert outcome.resumed_from == 0
    assert [entry.step for entry in outcome.evaluations] == [4, 8, 10]
    assert Checkpoints(tmp_path).steps() == [8, 10]
    assert train(CountingEngine({}), tmp_path, settings=other).resumed_from == 10
    # The finished training is still there, in a folder that resumes it.
    assert Checkpoints(tmp_path / "replaced-1").steps() == [8, 10]
    again = train(CountingEngine({}), tmp_path / "replaced-1")
    assert (again.resumed_from, [entry.step for entry in again.evaluations]) == (10, [4, 8, 10])
    train(CountingEngine(accuracies), tmp_path)  # the first settings, and no checkpoints of theirs
    assert Checkpoints(tmp_path / "replaced-2").steps() == [8, 10]


def test_workers_start_over_together(tmp_path):
    train(CountingEngine({4: 0.1, 8: 0.2, 10: 0.3}), tmp_path)
    other = SETTINGS | {"train_learning_rate": 0.2}
    ends = _run_workers(lambda engine, chief: train(engine, tmp_path, chief=chief, settings=other))
    assert [end.resumed_from for end in ends] == [0, 0]


def test_a_constant_schedule_goes_on_to_more_steps(tmp_path):
    constant = SETTINGS | {"train_schedule": "constant"}
    accuracies = {4: 0.1, 6: 0.2, 8: 0.9, 10: 0.3}
    train(CountingEngine(accuracies), tmp_path, total=6, settings=constant)
    outcome = train(CountingEngine(accuracies), tmp_path, total=10, settings=constant)
    assert (outcome.resumed_from, outcome.steps) == (6, 10)
    assert outcome.best is not None and outcome.best.step == 8
    fewer = train(CountingEngine(accuracies), tmp_path, total=6, settings=constant)
    assert (fewer.resumed_from, fewer.steps) == (0, 6), "what has more steps is another training"
