"""Steps, evaluations, best and resume, with an engine that only counts."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module import loop
from stagecraft.trainer_module.checkpoints import Checkpoints
from stagecraft.trainer_module.engines.base import Metrics, NonFiniteLossError
from stagecraft.trainer_module.settings import TrainSettings


class CountingEngine:
    """Its weight is the number of batches it has seen; accuracies are given."""

    learning_rate = 0.1

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


def _run(
    engine: CountingEngine,
    root: pathlib.Path,
    reporter: QuietReporter | None = None,
    total: int = 10,
    val: bool = True,
    timeline: Any = None,
) -> loop.Outcome:
    def batches(start: int) -> Iterator[int]:
        while True:
            yield start
            start += 1

    trainer = loop.Loop(
        engine,
        Checkpoints(root),
        reporter or QuietReporter(),  # type: ignore[arg-type]
        total=total,
        eval_every=4,
        timeline=timeline,
    )
    return trainer.run(batches, () if val else None)


def test_evaluates_at_every_boundary_and_at_the_end(tmp_path: pathlib.Path) -> None:
    reporter = QuietReporter()
    outcome = _run(CountingEngine({4: 0.1, 8: 0.2, 10: 0.3}), tmp_path, reporter)
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
    for step, total in ((0, 4), (3, 8), (20, 10)):
        engine = CountingEngine({4: 0.1, 8: 0.2, 10: 0.3})
        watch = Watch(step, engine)
        assert _run(engine, tmp_path, total=total, timeline=watch).steps == total
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


@pytest.mark.parametrize(
    ("settings", "steps", "between"),
    [
        ({"steps": 7}, 7, 8),
        ({"epochs": 2}, 16, 8),
        ({"epochs": 0.5}, 4, 8),
        ({"epochs": 0.001}, 1, 8),
        ({}, 78, 8),
        ({"epochs": 2, "eval_every": 3}, 16, 3),
    ],
)
def test_steps_from_settings(settings: dict[str, Any], steps: int, between: int) -> None:
    train = TrainSettings(batch_size=128, **settings)
    assert loop.total_steps(train, 1000) == steps
    assert loop.steps_between_evaluations(train, 1000) == between
