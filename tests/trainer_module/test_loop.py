"""Steps, evaluations, best and resume, with an engine that only counts."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module import loop, steps
from stagecraft.trainer_module.checkpointing import checkpoints
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.engines.base import Metrics, NonFiniteLossError
from stagecraft.trainer_module.settings import TrainSettings


class CountingEngine:
    """Its weight is the number of batches it has seen; accuracies are given."""

    learning_rate = 0.1
    repeated = 0

    def __init__(
        self,
        accuracies: Mapping[int, float],
        fails_at: int = 0,
        nan_at: int = 0,
        skips: Sequence[int] = (),
    ):
        self.step, self.batches, self.weight = 0, 0, 0
        self._skips = skips
        self.calls: list[int] = []
        self._accuracies, self._fails_at, self._nan_at = accuracies, fails_at, nan_at

    def feed(self, dataset: Iterator[int]) -> Iterator[int]:
        return iter(dataset)

    def train(self, batches: Iterator[int], steps: int) -> Metrics:
        self.calls.append(steps)
        for _ in range(steps):
            batch = next(batches)
            assert batch == self.batches, "not the batch whose turn it is"
            self.batches += 1
            if batch in self._skips:
                continue
            self.step, self.weight = self.step + 1, self.weight + 1
            if self.step == self._fails_at:
                raise KeyboardInterrupt
            if self.step == self._nan_at:
                raise NonFiniteLossError(self.step, float("nan"))
        return Metrics(1.0, 0.5, 10 * steps)

    def evaluate(self, dataset: Any) -> Metrics:
        return Metrics(1.0 / self.step, self._accuracies[self.step], 100)

    def state(self) -> dict[str, np.ndarray]:
        values = {"step": self.step, "batches": self.batches, "weight": self.weight}
        return {name: np.asarray(value) for name, value in values.items()}

    def snapshot(self) -> dict[str, np.ndarray]:
        return self.state()

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.step, self.batches, self.weight = (
            int(state[name]) for name in ("step", "batches", "weight")
        )

    def sum_over_workers(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def weights(self) -> dict[str, np.ndarray]:
        return {"weight": np.asarray(self.weight)}


class QuietReporter:
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.evaluations: list[int] = []

    def train(self, step: int, *_: Any, **__: Any) -> None:
        self.steps.append(step)

    def evaluation(self, step: int, loss: float, accuracy: float) -> None:
        self.evaluations.append(step)


SETTINGS = {"train_schedule": "cosine", "train_learning_rate": 0.1}


def _run(
    engine: CountingEngine,
    root: pathlib.Path,
    reporter: QuietReporter | None = None,
    total: int = 10,
    val: bool = True,
    keep: int = 2,
    settings: Mapping[str, Any] = SETTINGS,
    chief: bool = True,
    **more: Any,
) -> loop.Outcome:
    def batches(start: int) -> Iterator[int]:
        while True:
            yield start
            start += 1

    with Checkpoints(root, writes=chief, keep=keep) as store:
        trainer = loop.Loop(
            engine,
            store,
            reporter or QuietReporter(),  # type: ignore[arg-type]
            total=total,
            eval_every=4,
            settings=settings,
            chief=chief,
            **more,
        )
        return trainer.run(batches, () if val else None)


def test_evaluates_at_every_boundary_and_at_the_end(tmp_path: pathlib.Path) -> None:
    reporter = QuietReporter()
    outcome = _run(CountingEngine({4: 0.1, 8: 0.2, 10: 0.3}), tmp_path, reporter)
    assert (outcome.steps, outcome.batches, outcome.repeated) == (10, 10, 0)
    assert reporter.evaluations == [4, 8, 10]
    assert reporter.steps[-1] == 10
    assert outcome.steps == 10
    assert outcome.best == loop.Evaluation(10, 0.1, 0.3)
    assert outcome.resumed_from == 0
    assert outcome.images_per_second > 0


class Watch:
    """Notes the calls of the engine that are made in it."""

    def __init__(self, step: int, engine: CountingEngine):
        self.step, self.seen = step, []
        self._engine = engine

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        begin = self._engine.step
        yield
        self.seen.append((begin, self._engine.step))


@pytest.mark.parametrize("step", [1, 4, 5, 7, 10])
def test_one_step_is_watched_by_itself(tmp_path: pathlib.Path, step: int) -> None:
    engine = CountingEngine({4: 0.1, 8: 0.2, 10: 0.3})
    watch = Watch(step, engine)
    assert _run(engine, tmp_path, timeline=watch).steps == 10
    assert watch.seen == [(step - 1, step)]


def test_a_step_that_is_over_or_never_comes_is_not_watched(tmp_path: pathlib.Path) -> None:
    constant = SETTINGS | {"train_schedule": "constant"}
    for step, total in ((0, 4), (3, 8), (20, 10)):
        engine = CountingEngine({4: 0.1, 8: 0.2, 10: 0.3})
        watch = Watch(step, engine)
        outcome = _run(engine, tmp_path, total=total, timeline=watch, settings=constant)
        assert outcome.steps == total
        assert watch.seen == []


@pytest.mark.parametrize(
    ("accuracies", "best"),
    [
        ({4: 0.1, 8: 0.3, 10: 0.2}, 8),
        ({4: 0.3, 8: 0.1, 10: 0.2}, 4),
        ({4: 0.3, 8: 0.3, 10: 0.3}, 10),  # the lowest loss
    ],
)
def test_ends_with_the_best_weights(
    tmp_path: pathlib.Path, accuracies: dict[int, float], best: int
) -> None:
    engine = CountingEngine(accuracies)
    outcome = _run(engine, tmp_path)
    assert outcome.best is not None and outcome.best.step == best
    assert engine.weight == best
    assert outcome.steps == 10


def test_a_skipped_batch_is_no_step_and_is_not_taken_again(tmp_path: pathlib.Path) -> None:
    accuracies = {4: 0.1, 8: 0.2, 10: 0.3}
    with pytest.raises(KeyboardInterrupt):
        _run(CountingEngine(accuracies, fails_at=9, skips=[0, 5]), tmp_path)
    engine = CountingEngine(accuracies, skips=[11])
    assert _run(engine, tmp_path).steps == 10
    assert engine.batches == 13


def test_without_a_val_split_the_last_weights_count(tmp_path: pathlib.Path) -> None:
    engine = CountingEngine({})
    outcome = _run(engine, tmp_path, val=False)
    assert outcome.best is None
    assert engine.weight == 10


def test_goes_on_from_the_newest_checkpoint(tmp_path: pathlib.Path) -> None:
    accuracies = {4: 0.9, 8: 0.2, 10: 0.3}
    with pytest.raises(KeyboardInterrupt):
        _run(CountingEngine(accuracies, fails_at=9), tmp_path)
    engine, reporter = CountingEngine(accuracies), QuietReporter()
    outcome = _run(engine, tmp_path, reporter)
    assert outcome.resumed_from == 8
    assert reporter.evaluations == [4, 8, 10], "the evaluations of the first attempt are kept"
    assert outcome.best is not None and outcome.best.step == 4
    assert engine.weight == 4


def test_a_finished_training_is_not_trained_again(tmp_path: pathlib.Path) -> None:
    accuracies = {4: 0.1, 8: 0.3, 10: 0.2}
    first = _run(CountingEngine(accuracies), tmp_path)
    engine = CountingEngine(accuracies)
    again = _run(engine, tmp_path)
    assert engine.calls == []
    assert engine.weight == 8
    assert (again.steps, again.best, again.evaluations) == (
        first.steps,
        first.best,
        first.evaluations,
    )
    assert again.resumed_from == 10


def test_a_damaged_best_checkpoint_means_the_next_best(tmp_path: pathlib.Path) -> None:
    accuracies = {4: 0.9, 8: 0.5, 10: 0.3}
    _run(CountingEngine(accuracies), tmp_path)
    (tmp_path / "4" / "state.index").write_bytes(b"")
    engine = CountingEngine(accuracies)
    outcome = _run(engine, tmp_path)
    assert outcome.best is not None and outcome.best.step == 8
    assert engine.weight == 8


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(
    tmp_path: pathlib.Path,
) -> None:
    with pytest.raises(UserError, match="nan at step 7.*step 4.*learning_rate"):
        _run(CountingEngine({4: 0.1}, nan_at=7), tmp_path)
    assert Checkpoints(tmp_path).steps() == [4]


def test_weights_that_give_no_finite_loss_are_not_saved(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = CountingEngine({})
    monkeypatch.setattr(engine, "evaluate", lambda _: Metrics(float("inf"), 0.1, 100))
    with pytest.raises(UserError, match="val split is inf after step 4"):
        _run(engine, tmp_path)
    assert Checkpoints(tmp_path).steps() == []


def test_another_models_checkpoint_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(CountingEngine({4: 0.1, 8: 0.3, 10: 0.2}), tmp_path)
    engine = CountingEngine({})

    def refuse(_: Any) -> None:
        raise ValueError("another model's state")

    monkeypatch.setattr(engine, "restore", refuse)
    with pytest.raises(UserError, match="10: another model's state"):
        _run(engine, tmp_path)


def test_checkpoints_between_evaluations(tmp_path: pathlib.Path) -> None:
    accuracies, reporter = {4: 0.9, 8: 0.2, 10: 0.3}, QuietReporter()
    engine = CountingEngine(accuracies, fails_at=8)
    with pytest.raises(KeyboardInterrupt):
        _run(engine, tmp_path, reporter, checkpoint_every=3)
    assert Checkpoints(tmp_path).steps() == [4, 6], "3 is neither new nor the best"
    assert reporter.evaluations == [4]
    outcome = _run(CountingEngine(accuracies), tmp_path, reporter, checkpoint_every=3, keep=1)
    assert outcome.resumed_from == 6
    assert [entry.step for entry in outcome.evaluations] == [4, 8, 10]
    assert Checkpoints(tmp_path).steps() == [4, 10]


def test_saves_once_where_both_are_due(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, save = [], Checkpoints.save

    def note(self: Checkpoints, step: int, *args: Any, **more: Any) -> None:
        saved.append(step)
        save(self, step, *args, **more)

    monkeypatch.setattr(Checkpoints, "save", note)
    _run(CountingEngine({4: 0.1, 8: 0.2, 10: 0.3}), tmp_path, checkpoint_every=2)
    assert saved == [2, 4, 6, 8, 10]


class StopAt:
    """Says so once the engine has come to ``step``."""

    def __init__(self, engine: CountingEngine, step: int):
        self._engine, self._step = engine, step

    def __call__(self) -> bool:
        return self._engine.step >= self._step


@pytest.mark.parametrize("step", [0, 3, 4, 7, 9])
def test_a_training_that_is_told_to_stop_saves_and_goes_on_from_there(
    tmp_path: pathlib.Path, step: int
) -> None:
    accuracies = {4: 0.9, 8: 0.2, 10: 0.3}
    # The timeline makes a call end at the step.
    engine = CountingEngine(accuracies)
    with pytest.raises(loop.Preempted) as stopped:
        _run(engine, tmp_path, stop=StopAt(engine, step), timeline=Watch(step + 1, engine))
    assert stopped.value.step == step
    assert Checkpoints(tmp_path).steps()[-1] == step
    engine, reporter = CountingEngine(accuracies), QuietReporter()
    outcome = _run(engine, tmp_path, reporter)
    assert (outcome.resumed_from, outcome.steps) == (step, 10)
    assert reporter.evaluations == [4, 8, 10]
    assert sum(engine.calls) == 10 - step
    assert outcome.best is not None and outcome.best.step == 4


def test_what_is_told_to_stop_at_the_start_saves_nothing_new(tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _run(CountingEngine({4: 0.1, 8: 0.2}, fails_at=9), tmp_path)
    before = (tmp_path / "8").stat().st_mtime_ns
    with pytest.raises(loop.Preempted):
        _run(CountingEngine({}), tmp_path, stop=lambda: True)
    assert Checkpoints(tmp_path).steps() == [4, 8]
    assert (tmp_path / "8").stat().st_mtime_ns == before


def test_a_training_that_has_come_to_its_end_does_not_stop(tmp_path: pathlib.Path) -> None:
    engine = CountingEngine({4: 0.1, 8: 0.2, 10: 0.3})
    assert _run(engine, tmp_path, stop=StopAt(engine, 10)).steps == 10


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


def test_all_workers_stop_when_one_is_told_to_and_take_the_chiefs_steps(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FixedPace(loop.Pace):
        """The workers measure differently."""

        def __init__(self, *args: Any):
            super().__init__(*args)
            self.steps_per_call = 1 if threading.current_thread().name == "worker 0" else 4

        def add(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(loop, "Pace", FixedPace)
    engines = {}

    def run(engine: Worker, chief: bool) -> loop.Outcome:
        engines[chief] = engine
        told = (lambda: False) if chief else StopAt(engine, 3)
        return _run(engine, tmp_path, chief=chief, stop=told)

    stopped = _run_workers(run)
    assert [type(end) for end in stopped] == [loop.Preempted] * 2, stopped
    assert [end.step for end in stopped] == [3, 3]
    assert engines[True].calls == engines[False].calls == [1, 1, 1]
    assert Checkpoints(tmp_path).steps() == [3]


def test_all_workers_go_on_from_what_the_chief_can_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _run(CountingEngine({4: 0.1, 8: 0.2}, fails_at=9), tmp_path)
    ends = _run_workers(lambda engine, chief: _run(engine, tmp_path, chief=chief))
    assert [end.resumed_from for end in ends] == [8, 8]
    assert [end.best.step for end in ends] == [10, 10]


def test_a_worker_that_does_not_see_the_chiefs_checkpoints_says_so(tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _run(CountingEngine({4: 0.1}, fails_at=5), tmp_path / "0")

    class Alone(CountingEngine):
        def sum_over_workers(self, values: Sequence[float]) -> list[float]:
            return [4.0]

    with pytest.raises(UserError, match="1/4: .*all workers share"):
        _run(Alone({}), tmp_path / "1", chief=False)


def test_other_settings_refuse_what_is_not_finished(tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _run(CountingEngine({4: 0.1}, fails_at=5), tmp_path)
    other = SETTINGS | {"train_learning_rate": 0.2}
    with pytest.raises(UserError, match="step 4 .*learning_rate was 0.1, is 0.2.*--fresh"):
        _run(CountingEngine({}), tmp_path, settings=other)
    with pytest.raises(UserError, match="train.steps .*was 10, is 12"):
        _run(CountingEngine({}), tmp_path, total=12)
    assert Checkpoints(tmp_path).steps() == [4]
    harmless = SETTINGS | {"train_eval_batch_size": 3, "parallel_strategy": "mirrored"}
    engine = CountingEngine({8: 0.2, 10: 0.3})
    assert _run(engine, tmp_path, settings=harmless).resumed_from == 4


def test_other_settings_start_over_what_is_finished(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    accuracies = {4: 0.1, 8: 0.2, 10: 0.3}
    _run(CountingEngine(accuracies), tmp_path)
    other = SETTINGS | {"train_learning_rate": 0.2}
    with caplog.at_level(logging.INFO):
        outcome = _run(CountingEngine(accuracies), tmp_path, settings=other)
    assert "removed the checkpoints of a finished training" in caplog.text
    assert "train.learning_rate was 0.1, is 0.2" in caplog.text
    assert outcome.resumed_from == 0
    assert [entry.step for entry in outcome.evaluations] == [4, 8, 10]
    assert Checkpoints(tmp_path).steps() == [8, 10]
    assert _run(CountingEngine({}), tmp_path, settings=other).resumed_from == 10


def test_workers_start_over_together(tmp_path: pathlib.Path) -> None:
    _run(CountingEngine({4: 0.1, 8: 0.2, 10: 0.3}), tmp_path)
    other = SETTINGS | {"train_learning_rate": 0.2}
    ends = _run_workers(lambda engine, chief: _run(engine, tmp_path, chief=chief, settings=other))
    assert [end.resumed_from for end in ends] == [0, 0]


def test_a_constant_schedule_goes_on_to_more_steps(tmp_path: pathlib.Path) -> None:
    constant = SETTINGS | {"train_schedule": "constant"}
    accuracies = {4: 0.1, 6: 0.2, 8: 0.9, 10: 0.3}
    _run(CountingEngine(accuracies), tmp_path, total=6, settings=constant)
    outcome = _run(CountingEngine(accuracies), tmp_path, total=10, settings=constant)
    assert (outcome.resumed_from, outcome.steps) == (6, 10)
    assert outcome.best is not None and outcome.best.step == 8
    fewer = _run(CountingEngine(accuracies), tmp_path, total=6, settings=constant)
    assert (fewer.resumed_from, fewer.steps) == (0, 6), "what has more steps is another training"


def test_phases(tmp_path: pathlib.Path) -> None:
    phases: list[str] = []
    accuracies = {4: 0.1, 8: 0.2, 10: 0.3}
    _run(CountingEngine(accuracies), tmp_path, checkpoint_every=6, on_phase=phases.append)
    evaluated, saved = ["train", "evaluate", "save"], ["train", "save"]
    assert phases == [*evaluated, *saved, *evaluated, *evaluated, "done"]


def test_a_checkpoint_that_could_not_be_written_stops_the_training(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoints.json, "dumps", fail)
    engine = CountingEngine({4: 0.1, 8: 0.2})
    with pytest.raises(UserError, match="4: cannot write: the disk is full"):
        _run(engine, tmp_path)
    assert engine.step == 8, "it was written while training went on"
    with pytest.raises(UserError, match="nan at step 7"):
        _run(CountingEngine({4: 0.1}, nan_at=7), tmp_path)


@pytest.mark.parametrize(
    ("settings", "total", "between"),
    [
        ({"steps": 7}, 7, 8),
        ({"epochs": 2}, 16, 8),
        ({"epochs": 0.5}, 4, 8),
        ({"epochs": 0.001}, 1, 8),
        ({}, 78, 8),
        ({"epochs": 2, "eval_every": 3}, 16, 3),
    ],
)
def test_steps_from_settings(settings: dict[str, Any], total: int, between: int) -> None:
    train = TrainSettings(batch_size=128, **settings)
    assert steps.total_steps(train, 1000) == total
    assert steps.steps_between_evaluations(train, 1000) == between
