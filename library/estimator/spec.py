"""What a ``model_fn`` gets and returns, with the names of ``tf.estimator``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class ModeKeys:
    """The argument ``mode``."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class EstimatorSpec(NamedTuple):
    """What a ``model_fn`` returns."""

    mode: str
    predictions: Any = None
    """A tensor or a dictionary of tensors ``[batch, …]``; needed in the mode ``PREDICT``."""
    loss: Any = None
    """The mean over the batch, or ``[batch]``; needed in the modes ``TRAIN`` and ``EVAL``."""
    train_op: None = None
    """Always None: ``train.optimizer`` names the optimizer."""
    eval_metric_ops: Mapping[str, Any] | None = None
    """The value of each example, ``[batch]``, by the name of the metric."""
    export_outputs: Any = None
    """Ignored: the exported model returns the predictions."""
