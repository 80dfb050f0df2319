"""The interface between the training loop and the engine of any topology."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from stagecraft.trainer_module.planning.plan import Plan


class Metrics(NamedTuple):
    """Metrics over a number of examples."""

    loss: float
    """Mean loss in nats: training adds label smoothing and the model's penalties to the cross
    entropy, evaluation does not."""

    accuracy: float
    """Share of the examples whose class is the one with the largest logit, 0 to 1."""

    examples: int


class NonFiniteLossError(Exception):
    """The loss of a step, or a gradient, is infinite or not a number.

    With a loss scale, the step left the weights as they were; without one, they are lost.
    """

    def __init__(self, step: int, loss: float):
        """Takes the step, counted from 1, and its loss: finite if only a gradient is not."""
        super().__init__(f"loss {loss} at step {step}")
        self.step = step
        self.loss = loss

    @property
    def updates(self) -> int:
        """Updates of the weights before this loss."""
        return self.step - 1


class Engine(Protocol):
    """Holds a model, its optimizer and a step counter on the devices of a topology."""

    @property
    def plan(self) -> Plan | None:
        """The plan of a model in stages."""

    @property
    def step(self) -> int:
        """Optimizer steps done so far."""

    @property
    def batches(self) -> int:
        """Global batches taken so far: more than steps if a loss scale skipped some."""

    @property
    def repeated(self) -> int:
        """Steps that were applied twice and counted once, since this process started.

        A lost worker of a parameter server may have applied its step before another repeats it.
        """

    @property
    def learning_rate(self) -> float:
        """Of the last step."""

    def feed(self, dataset: Any) -> Iterator[Any]:
        """Global batches, one after the other, ready for :meth:`train`."""

    def train(self, batches: Iterator[Any], steps: int) -> Metrics:
        """Takes ``steps`` optimizer steps.

        Raises:
            NonFiniteLossError: a step's loss is not finite; nothing is trained after it.
        """

    def evaluate(self, dataset: Iterable[Any]) -> Metrics:
        """Metrics over all examples of ``dataset`` whose weight is not 0."""

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to resume training, by name; the same on any topology."""

    def snapshot(self) -> dict[str, Any]:
        """:meth:`state` as it is now, to be read while training continues."""

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """The inverse of :meth:`state`."""

    def replica_states(self) -> list[dict[str, np.ndarray]]:
        """:meth:`state` of each replica in this process; equal, bit for bit."""

    def gradients(self, batch: Any) -> tuple[float, dict[str, np.ndarray]]:
        """Loss and gradient (by variable path) of one global batch; changes nothing."""

    def sum_over_workers(self, values: Sequence[float]) -> list[float]:
        """Sums values over all workers, which all call it and wait for each other.

        With one worker, or one that drives the others, the sum is the values themselves.
        """

    def weights(self) -> dict[str, np.ndarray]:
        """Variable path -> value, of the model that is evaluated and exported."""
