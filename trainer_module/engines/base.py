"""What the training loop asks of an engine, whatever topology it drives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np


class Metrics(NamedTuple):
    """Figures over a number of examples."""

    loss: float
    """Mean loss: in training with label smoothing and the model's own penalties, in evaluation
    the plain cross entropy, in nats."""

    accuracy: float
    """Share of the examples whose class is the one with the largest logit, 0 to 1."""

    examples: int


class NonFiniteLossError(Exception):
    """The loss of a step is infinite or not a number; the weights are lost with it."""

    def __init__(self, step: int, loss: float):
        super().__init__(f"loss {loss} at step {step}")
        self.step = step
        self.loss = loss


class Engine(Protocol):
    """Holds a model, its optimizer and a step counter on the devices of a topology."""

    @property
    def step(self) -> int:
        """Optimizer steps done so far."""

    @property
    def replicas(self) -> int:
        """What divides the number of examples of every batch."""

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

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """The inverse of :meth:`state`."""

    def weights(self) -> dict[str, np.ndarray]:
        """Variable path -> value, of the model that is evaluated and exported."""
