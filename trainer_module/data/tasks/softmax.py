"""Softmax cross entropy over the last axis, and what it needs from a model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.data.tasks import checks

if TYPE_CHECKING:
    from stagecraft.trainer_module.settings import TrainSettings


class DividedLogits(Protocol):
    """Logits that several devices hold, each for some of the classes."""

    def cross_entropy(self, targets: Any, dtype: Any, smoothing: float) -> Any:
        """Cross entropy, by the function of this name; ``smoothing``: ``train.label_smoothing``."""

    def largest(self, dtype: Any) -> Any:
        """The class of the largest logit, the first of equal ones: of the integer dtype."""


Find = Callable[[Any], "DividedLogits | None"]
"""The divided logits of which a tensor is the whole; None: it is not divided."""

_find: ContextVar[Find] = ContextVar("divided_logits", default=lambda logits: None)


@contextlib.contextmanager
def dividing(find: Find) -> Iterator[None]:
    """In the block, the functions of this module take divided logits as they are."""
    token = _find.set(find)
    try:
        yield
    finally:
        _find.reset(token)


def cross_entropy(logits: Any, targets: Any, dtype: Any, train: TrainSettings | None = None) -> Any:
    """Softmax cross entropy in nats, with ``train.label_smoothing``: the shape of the targets.

    With smoothing ``s``, the target is ``1 - s`` on the label plus ``s / classes`` on every class
    (Szegedy et al. 2016, section 7).

    Args:
        logits: ``[..., classes]``.
        targets: integers ``[...]``.
        dtype: at least that of the result.
        train: None: no smoothing.
    """
    import tensorflow as tf

    smoothing = 0.0 if train is None else train.label_smoothing
    if (divided := _find.get()(logits)) is not None:
        return divided.cross_entropy(targets, dtype, smoothing)
    logits = logits if logits.dtype == tf.float64 else tf.cast(logits, dtype)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    if smoothing:
        uniform = tf.reduce_logsumexp(logits, axis=-1) - tf.reduce_mean(logits, axis=-1)
        losses = (1 - smoothing) * losses + smoothing * uniform
    return losses


def is_correct(logits: Any, targets: Any) -> Any:
    """Whether the largest logit is the target's: bool, the shape of the targets."""
    import tensorflow as tf

    if (divided := _find.get()(logits)) is not None:
        return tf.equal(divided.largest(targets.dtype), targets)
    return tf.equal(tf.argmax(logits, axis=-1, output_type=targets.dtype), targets)


def named_outputs(outputs: Any, class_names: Sequence[str] | None) -> dict[str, Any]:
    """The exported model's outputs, from logits ``[batch, classes]``.

    ``logits``, ``probabilities``, ``class_id``; and ``class_name``, if classes have names.
    """
    import tensorflow as tf

    logits = tf.cast(outputs, tf.float32)
    class_id = tf.argmax(logits, axis=-1)
    found = {"logits": logits, "probabilities": tf.nn.softmax(logits), "class_id": class_id}
    if class_names is not None:
        found["class_name"] = tf.gather(tf.constant(list(class_names)), class_id)
    return found


def check_logits(name: str, outputs: Any, shape: tuple[int, ...], each: str) -> None:
    """Refuses a model whose outputs for a batch of three are not logits ``[batch, *shape]``.

    Args:
        name: of the model.
        shape: ends with the number of classes.
        each: what has a logit, in a message.

    Raises:
        UserError: as said.
    """
    import keras
    import numpy as np

    checks.outputs(name, outputs, shape, f", one logit for each {each}")
    if isinstance(outputs, keras.KerasTensor):  # shapes alone
        return
    values = np.asarray(keras.ops.convert_to_numpy(outputs), np.float32)
    # bfloat16 has 8 bits of fraction: each of the summands is off by at most 2 ** -9 of itself.
    if shape[-1] > 1 and values.min() >= 0 and np.allclose(values.sum(axis=-1), 1, atol=4e-3):
        raise UserError(
            f"train.model: {name} returns probabilities, but the loss and the exported model "
            "apply the softmax; remove the softmax at the model's end to return logits",
            setting="train.model",
            value=name,
        )
