import itertools
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from counting import CountingEngine, QuietReporter

from stagecraft.common.errors import UserError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation, Evaluations
from stagecraft.trainer_module.engines.step_metrics import Metrics
from stagecraft.trainer_module.training import evaluator, loop
from stagecraft.trainer_module.training.record import Outcome

SETTINGS = {"train_schedule": "cosine"}
TOTAL = 8
ACCURACIES = {2: 0.2, 4: 0.9, 6: 0.3, 8: 0.4}


class Engine(CountingEngine):
    """Notes what it evaluates."""

    def __init__(self, accuracies: Mapping[int, float] = ACCURACIES):
        super().__init__(accuracies)
        self.evaluated: list[int] = []

    def evaluate(self, dataset: Any) -> Metrics:
        self.evaluated.append(self.step)
        accuracy = self._accuracies[self.step]
        return Metrics(1 - accuracy, {"accuracy": accuracy}, 10)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "POLL_SECONDS", 0.01)


def _train(root: pathlib.Path, engine: Engine, total: int = TOTAL, keep: int = 1) -> Outcome:
    with Checkpoints(root, keep=keep) as store:
        return loop.Loop(
            engine,  # type: ignore[arg-type]
            store,
            QuietReporter(),  # type: ignore[arg-type]
            total=total,
            eval_every=2,
            settings=SETTINGS,
            rank=registries.TASKS.get("image_classification").ranked,
            evaluations=Evaluations(root),
        ).run(itertools.count, None)


def _evaluate(root: pathlib.Path, engine: Engine, total: int = TOTAL) -> None:
    evaluator.evaluate_all(
        engine,  # type: ignore[arg-type]
        (),
        Checkpoints(root, writes=False),
        QuietReporter(),  # type: ignore[arg-type]
        resume.resolved(SETTINGS, total),
        lambda phase: None,
    )


@pytest.fixture
def beside(tmp_path: pathlib.Path) -> Iterator[Callable[[Engine], None]]:
    """Evaluates in another thread, until the last checkpoint is."""
    threads: list[threading.Thread] = []

    def start(engine: Engine) -> None:
        threads.append(threading.Thread(target=_evaluate, args=[tmp_path, engine], daemon=True))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_the_best_of_what_another_found(tmp_path, beside):
    trained, looking = Engine(), Engine()
    beside(looking)
    outcome = _train(tmp_path, trained)
    assert looking.evaluated == [2, 4, 6, 8]
    assert [entry.step for entry in outcome.evaluations] == [2, 4, 6, 8]
    assert outcome.best == Evaluation(4, pytest.approx(0.1), accuracy=0.9)
    assert trained.step == 4  # its weights are the ones that are exported
    assert trained.evaluated == []


def test_what_is_not_evaluated_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluator, "EVALUATOR_SECONDS", 0.05)  # it never comes
    outcome = _train(tmp_path, Engine())
    assert outcome.best is None
    assert Checkpoints(tmp_path).steps() == [2, 4, 6, 8]
    # It comes back, and finds them all; the next to train finds what it has found.
    _evaluate(tmp_path, Engine())
    again = _train(tmp_path, Engine())
    assert again.best is not None and again.best.step == 4


def test_those_of_other_settings_are_not_looked_at(tmp_path, beside):
    for step in (2, TOTAL):  # of whatever was here before
        Evaluations(tmp_path).add(Evaluation(step, 0.0, accuracy=1.0))
    looking = Engine({**ACCURACIES, 10: 0.5, 12: 0.1})
    with Checkpoints(tmp_path) as store:
        settings = resume.resolved({"train_schedule": "constant"}, TOTAL)
        progress = {"settings": settings, "finished": True}
        store.save(TOTAL, {"step": np.asarray(TOTAL)}, progress, best_step=TOTAL)
    beside(looking)
    outcome = _train(tmp_path, Engine())
    assert [entry.step for entry in outcome.evaluations] == [2, 4, 6, 8]
    assert looking.evaluated == [2, 4, 6, 8]


def test_a_loss_that_is_no_number(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluator, "EVALUATOR_SECONDS", 0.05)
    _train(tmp_path, Engine())
    with pytest.raises(UserError, match="nan after step 2"):
        _evaluate(tmp_path, Engine(dict.fromkeys(ACCURACIES, float("nan"))))


def test_evaluations_are_kept_in_order(tmp_path):
    found = Evaluations(tmp_path)
    assert found.read() == []
    for step, accuracy in ((4, 0.4), (2, 0.2), (4, 0.5)):
        found.add(Evaluation(step, 0.1, accuracy=accuracy))
    assert Evaluations(tmp_path).read() == [
        Evaluation(2, 0.1, accuracy=0.2),
        Evaluation(4, 0.1, accuracy=0.5),
    ]
    (tmp_path / "evaluations.json").write_text('[{"step": 2, "lo')
    assert found.read() == []  # they can be made again
    found.clear()
    found.clear()
    assert found.read() == []
