"""The results of a training. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses

from stagecraft.trainer_module.checkpointing.evaluations import Evaluation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a training."""

    steps: int
    best: Evaluation | None
    """Evaluation of the engine's final weights; None: there was no evaluation."""

    evaluations: list[Evaluation]
    images_per_second: float
    """Throughput of training steps, without tracing, evaluating and saving."""

    resumed_from: int
    """Steps of earlier attempts; 0: this is the first."""

    batches: int
    """Number of global batches; greater than ``steps`` if a loss scale skipped some."""

    repeated: int
    """Steps that asynchronous workers applied twice, after a worker was lost."""
