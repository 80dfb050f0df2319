import errno
import json
import os
import types
from typing import Any

import pytest
from counting import SETTINGS, CountingEngine, QuietReporter, Watch, train

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.checkpointing import checkpoint_files
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.engines.step_metrics import Metrics
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.training import loop
from stagecraft.trainer_module.training.evaluator import DivergedError


def test_evaluates_at_every_boundary_and_at_the_end(tmp_path):
    reporter = QuietReporter()
    outcome = train(CountingEngine({4: 0.1, 8: 0.2, 10: 0.3}), tmp_path, reporter)
    assert (outcome.steps, outcome.batches, outcome.repeated) == (10, 10, 0)
    assert reporter.evaluations == [4, 8, 10]
    assert reporter.steps[-1] == 10
    assert outcome.best == loop.Evaluation(10, 0.1, accuracy=0.3)
    assert outcome.resumed_from == 0
    assert outcome.images_per_second > 0


@pytest.mark.parametrize("step", [1, 4, 5, 7, 10])
def test_one_step_is_watched_by_itself(tmp_path, step):
    engine = CountingEngine({4: 0.1, 8: 0.2, 10: 0.3})
    watch = Watch(step, engine)
    assert train(engine, tmp_path, timeline=watch).steps == 10
    assert watch.seen == [(step - 1, step)]


def test_a_step_that_is_over_or_never_comes_is_not_watched(tmp_path):
    constant = SETTINGS | {"train_schedule": "constant"}
    for step, total in ((0, 4), (3, 8), (20, 10)):
        engine = CountingEngine({4: 0.1, 8: 0.2, 10: 0.3})
        watch = Watch(step, engine)
        outcome = train(engine, tmp_path, total=total, timeline=watch, settings=constant)
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
def test_ends_with_the_best_weights(tmp_path, accuracies, best):
    engine = CountingEngine(accuracies)
    outcome = train(engine, tmp_path)
    assert outcome.best is not None and outcome.best.step == best
    assert engine.weight == best
    assert outcome.steps == 10


def test_a_skipped_batch_is_no_step_and_is_not_taken_again(tmp_path):
    accuracies = {4: 0.1, 8: 0.2, 10: 0.3}
    with pytest.raises(KeyboardInterrupt):
        train(CountingEngine(accuracies, fails_at=9, skips=[0, 5]), tmp_path)
    engine = CountingEngine(accuracies, skips=[11])
    assert train(engine, tmp_path).steps == 10
    assert engine.batches == 13


def test_without_a_val_split_the_last_weights_count(tmp_path):
    engine = CountingEngine({})
    outcome = train(engine, tmp_path, val=False)
    assert outcome.best is None
    assert engine.weight == 10


def test_a_finished_training_is_not_trained_again(tmp_path):
    accuracies = {4: 0.1, 8: 0.3, 10: 0.2}
    first = train(CountingEngine(accuracies), tmp_path)
    engine = CountingEngine(accuracies)
    again = train(engine, tmp_path)
    assert engine.calls == []
    assert engine.weight == 8
    assert (again.steps, again.best, again.evaluations) == (
        first.steps,
        first.best,
        first.evaluations,
    )
    assert again.resumed_from == 10


def test_a_damaged_best_checkpoint_means_the_next_best(tmp_path):
    accuracies = {4: 0.9, 8: 0.5, 10: 0.3}
    train(CountingEngine(accuracies), tmp_path)
    (tmp_path / "4" / "state.index").write_bytes(b"")
    engine = CountingEngine(accuracies)
    outcome = train(engine, tmp_path)
    assert outcome.best is not None and outcome.best.step == 8
    assert engine.weight == 8


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(DivergedError) as raised:
        train(CountingEngine({4: 0.1}, nan_at=7), tmp_path)
    assert (raised.value.updates, raised.value.precision) == (6, "float32")
    assert Checkpoints(tmp_path).steps() == [4]


def test_weights_that_give_no_finite_loss_are_not_saved(tmp_path, monkeypatch):
    engine = CountingEngine({})
    monkeypatch.setattr(engine, "evaluate", lambda _: Metrics(float("inf"), {"accuracy": 0.1}, 100))
    with pytest.raises(UserError, match="Lower"):
        train(engine, tmp_path)
    assert Checkpoints(tmp_path).steps() == []


def test_another_models_checkpoint_is_refused(tmp_path, monkeypatch):
    train(CountingEngine({4: 0.1, 8: 0.3, 10: 0.2}), tmp_path)
    engine = CountingEngine({})

    def refuse(_: Any) -> None:
        raise ValueError("another model's state")

    monkeypatch.setattr(engine, "restore", refuse)
    with pytest.raises(UserError, match="10: another model's state"):
        train(engine, tmp_path)


def test_checkpoints_between_evaluations(tmp_path):
    accuracies, reporter = {4: 0.9, 8: 0.2, 10: 0.3}, QuietReporter()
    engine = CountingEngine(accuracies, fails_at=8)
    with pytest.raises(KeyboardInterrupt):
        train(engine, tmp_path, reporter, checkpoint_every=3)
    assert Checkpoints(tmp_path).steps() == [4, 6], "3 is neither new nor the best"
    assert reporter.evaluations == [4]
    outcome = train(CountingEngine(accuracies), tmp_path, reporter, checkpoint_every=3, keep=1)
    assert outcome.resumed_from == 6
    assert [entry.step for entry in outcome.evaluations] == [4, 8, 10]
    assert Checkpoints(tmp_path).steps() == [4, 10]


def test_saves_once_where_both_are_due(tmp_path, monkeypatch):
    saved, save = [], Checkpoints.save

    def note(self: Checkpoints, step: int, *args: Any, **more: Any) -> None:
        saved.append(step)
        save(self, step, *args, **more)

    monkeypatch.setattr(Checkpoints, "save", note)
    train(CountingEngine({4: 0.1, 8: 0.2, 10: 0.3}), tmp_path, checkpoint_every=2)
    assert saved == [2, 4, 6, 8, 10]


def test_phases(tmp_path):
    phases: list[str] = []
    accuracies = {4: 0.1, 8: 0.2, 10: 0.3}
    train(CountingEngine(accuracies), tmp_path, checkpoint_every=6, on_phase=phases.append)
    evaluated, saved = ["train", "evaluate", "save"], ["train", "save"]
    assert phases == [*evaluated, *saved, *evaluated, *evaluated, "done"]


def test_a_checkpoint_that_could_not_be_written_stops_the_training(tmp_path, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(
        checkpoint_files, "json", types.SimpleNamespace(dumps=fail, loads=json.loads)
    )
    engine = CountingEngine({4: 0.1, 8: 0.2})
    with pytest.raises(UserError, match="disk"):
        train(engine, tmp_path)
    assert engine.step == 8, "it was written while training went on"
    with pytest.raises(UserError, match="nan at step 7"):
        train(CountingEngine({4: 0.1}, nan_at=7), tmp_path)


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
def test_steps_from_settings(settings, total, between):
    train = TrainSettings(batch_size=128, **settings)
    assert train.total_steps(1000) == total
    assert train.steps_between_evaluations(1000) == between
