"""An engine that only counts, and a loop around it."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
from stagecraft.trainer_module.engines.step_metrics import Metrics, NonFiniteLossError
from stagecraft.trainer_module.training import loop
from stagecraft.trainer_module.training.monitoring.curve import Point
from stagecraft.trainer_module.training.record import Outcome


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
        return Metrics(1.0, {"accuracy": 0.5}, 10 * steps)

    def evaluate(self, dataset: Any) -> Metrics:
        return Metrics(1.0 / self.step, {"accuracy": self._accuracies[self.step]}, 100)

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
        self.logged: list[Point] = []
        self.resumes: list[tuple[int, int]] = []

    def resumed(self, step: int, total: int) -> None:
        self.resumes.append((step, total))

    def train(self, point: Point, total: int, eta_seconds: float) -> None:
        self.steps.append(point.step)

    def log(self, point: Point) -> None:
        self.logged.append(point)

    def evaluation(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation.step)


SETTINGS = {"train_schedule": "cosine", "train_learning_rate": 0.1}


def train(
    engine: CountingEngine,
    root: pathlib.Path,
    reporter: QuietReporter | None = None,
    total: int = 10,
    val: bool = True,
    keep: int = 2,
    settings: Mapping[str, Any] = SETTINGS,
    chief: bool = True,
    **more: Any,
) -> Outcome:
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
            rank=registries.TASKS.get("image_classification").ranked,
            chief=chief,
            **more,
        )
        return trainer.run(batches, () if val else None)


class Watch:
    """Notes the calls of the engine that it records."""

    def __init__(self, step: int, engine: CountingEngine):
        self.step, self.seen = step, []
        self._engine = engine

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        begin = self._engine.step
        yield
        self.seen.append((begin, self._engine.step))
