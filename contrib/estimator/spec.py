"""Names of ``tf.estimator`` that a ``model_fn`` uses, and errors for those that it cannot use."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from stagecraft.common.errors import UserError, said


class ModeKeys:
    """The argument ``mode``."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class EstimatorSpec(NamedTuple):
    """The result of a ``model_fn``."""

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


WEIGHTS = "_weights"
"""Input of the model with the weights of the examples, which are 0 for padding."""

_DEVICES = (
    "parallel.strategy: grid with stages, cuts and devices, for a Keras model with layers; see "
    "docs/how-to/estimators.md"
)

_OF_MESSAGES = {
    r"has no attribute 'layers'|compat\.v1\.layers|tf\.layers": (
        "tf.layers",
        "keras.layers, such as keras.layers.Dense in place of tf.layers.dense",
    ),
    r"has no attribute 'estimator'": (
        "tf.estimator",
        "sc.estimator.EstimatorSpec and sc.estimator.ModeKeys",
    ),
    r"has no attribute 'contrib'": ("tf.contrib", "keras.layers or TensorFlow's ops"),
    r"has no attribute 'minimize'|minimize|compute_gradients|No variables to optimize": (
        "optimizer.minimize",
        "train_op=None, with train.optimizer and train.learning_rate",
    ),
    r"has no attribute '(losses|metrics)'": (
        "tf.losses or tf.metrics",
        "keras.losses, and the values of the examples in eval_metric_ops",
    ),
    r"feature_column|DenseFeatures|input_layer|linear_model": (
        "feature columns",
        "features=… of from_model_fn, whose columns Transform computes",
    ),
    r"device specification|unknown device|/device:": ("tf.device", _DEVICES),
}
"""Pattern of an error -> what raised it, and what replaces it."""

_OF_VARIABLES = re.compile(r"Variable|VarHandle|Placeholder|NoOp|Identity|Const")

_STATEFUL_DRAWS = re.compile(r"(Random|TruncatedNormal|Multinomial|ParameterizedTruncatedNormal)")
"""Start of the names of ops whose numbers depend on what the process drew before."""


def _refused(what: str, use: str, cause: str = "") -> UserError:
    more = f" ({cause})" if cause else ""
    return UserError(
        f"model_fn: {what} does not work here{more}; use {use}",
        setting="train.model",
        value=what,
        suggestion=use,
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turns an error of what Estimators had into one that names the replacement."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # whatever the user's function raises
        for pattern, (what, use) in _OF_MESSAGES.items():
            if re.search(pattern, str(error)):
                raise _refused(what, use, said(error)) from error
        raise


def call_model_fn(
    model_fn: Callable[..., Any], features: Any, labels: Any, mode: str, params: Any
) -> Any:
    """Calls it with those of the arguments that it has, as Estimator does."""
    known = inspect.signature(model_fn).parameters
    given = {"labels": labels, "mode": mode, "params": params, "config": None}
    anything = any(each.kind is each.VAR_KEYWORD for each in known.values())
    return model_fn(
        features, **{name: value for name, value in given.items() if name in known or anything}
    )


def checked_spec(spec: Any, mode: str) -> EstimatorSpec:
    """The spec, if the mode's fields are there and ``train_op`` is None.

    Raises:
        UserError: otherwise.
    """
    if not all(hasattr(spec, name) for name in ("predictions", "loss", "eval_metric_ops")):
        what = f"a return value of type {type(spec).__name__}"
        raise _refused(what, "sc.estimator.EstimatorSpec")
    if getattr(spec, "train_op", None) is not None:
        raise _refused("train_op", "train_op=None, with train.optimizer and train.learning_rate")
    needed = "predictions" if mode == ModeKeys.PREDICT else "loss"
    if getattr(spec, needed) is None:
        raise _refused(f"no {needed} in the mode {mode!r}", f"EstimatorSpec(mode, {needed}=…)")
    return EstimatorSpec(mode, spec.predictions, spec.loss, None, spec.eval_metric_ops)


def check_metrics(found: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Refuses metrics that are no values of examples, or that ``metrics`` does not name.

    Raises:
        UserError: as said.
    """
    if sorted(found) != sorted(names):
        what = f"eval_metric_ops with {', '.join(sorted(found)) or 'no metrics'}"
        raise _refused(what, f"the names in metrics of from_model_fn: {', '.join(names) or 'none'}")
    for name, value in found.items():
        if isinstance(value, tuple) or hasattr(value, "update_state"):
            use = "the value of each example, [batch], such as keras.ops.equal(labels, ids)"
            raise _refused(f"the metric {name} with a state", use)


def check_graph(graph: Any) -> None:
    """Refuses ops on devices that ``model_fn`` chose, and draws that differ between topologies.

    Raises:
        UserError: as said.
    """
    for op in graph.get_operations():
        if op.device and not _OF_VARIABLES.search(op.type):
            raise _refused("tf.device", _DEVICES, f"{op.type} on {op.device}")
        if _STATEFUL_DRAWS.match(op.type):
            use = "keras.layers.Dropout or another layer, which draws the same on every topology"
            raise _refused("tf.nn.dropout or tf.random", use, op.name)
