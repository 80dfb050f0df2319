"""What the training loop asks of an engine, whatever topology it drives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from stagecraft.trainer_module.planning.plan import Plan


class Metrics(NamedTuple):
    """Figures over a number of examples."""

    loss: float
    """Mean loss: in training with label smoothing and the model's own penalties, in evaluation
    the plain cross entropy, in nats."""

    accuracy: float
    """Share of the examples whose class is the one with the largest logit, 0 to 1."""

    examples: int


class NonFiniteLossError(Exception):
    """The loss of a step, or a gradient, is infinite or not a number.

    With a loss scale the weights are what they were before it; without one they are lost.
    """

    def __init__(self, step: int, loss: float):
        """Notes which step it was, from 1, and its loss: finite where only a gradient is not."""
        super().__init__(f"loss {loss} at step {step}")
        self.step = step
        self.loss = loss

    @property
    def updates(self) -> int:
        """Of the weights, before this loss was computed."""
        return self.step - 1


class Engine(Protocol):
    """Holds a model, its optimizer and a step counter on the devices of a topology."""

    @property
    def plan(self) -> Plan | None:
        """What was predicted, of a model in stages."""

    @property
    def step(self) -> int:
        """Optimizer steps done so far."""

    @property
    def batches(self) -> int:
        """Global batches taken so far: more than steps where a loss scale made it skip some."""

    @property
    def repeated(self) -> int:
        """Steps of this process's time that were applied once more than they count.

        A worker of a parameter server that is lost may have done its step, and another does it
        again.
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
        """Every example of ``dataset`` that has a weight, once."""

    def state(self) -> dict[str, np.ndarray]:
        """Everything that training goes on from, by name; the same on any topology."""

    def snapshot(self) -> dict[str, Any]:
        """:meth:`state` as it is now, for whoever reads it later, while training goes on."""

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """The inverse of :meth:`state`."""

    def replica_states(self) -> list[dict[str, np.ndarray]]:
        """:meth:`state` as each of this process's replicas has it; equal, bit for bit."""

    def gradients(self, batch: Any) -> tuple[float, dict[str, np.ndarray]]:
        """Loss and gradient (by variable path) of one global batch; changes nothing."""

    def sum_over_workers(self, values: Sequence[float]) -> list[float]:
        """The sum over all workers of what each gives; they all call it, and wait for each other.

        Where there is one worker, or one that drives all, it is what was given.
        """

    def weights(self) -> dict[str, np.ndarray]:
        """Variable path -> value, of the model that is evaluated and exported."""
