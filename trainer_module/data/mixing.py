"""Mixes each example with a partner (mixup, cutmix): the partner is that of the global batch.

The partner of the i-th of n examples is the (n - 1 - i)-th. Its share depends on seed, epoch and id
alone. So an example is mixed the same on every topology.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.augment import Draws
from stagecraft.trainer_module.data.augmentation import Mixing
from stagecraft.trainer_module.data.batch import Batch

_DRAW = 900
"""Number of the draw of the share; augmentations use smaller or much greater numbers."""

_STEPS = 40
"""Bisections: the share is exact to 2 ** -40."""


class Mixed(NamedTuple):
    """Targets of mixed examples; each of ``[batch, …]``."""

    targets: tf.Tensor
    partners: tf.Tensor
    """The targets of the partners."""
    share: tf.Tensor
    """float32 ``[batch]``: of the example itself in its mixture with the partner."""
    weights: tf.Tensor
    """float32 ``[batch, 2]``: of the example and of the partner."""


def find(names: Any) -> Mixing | None:
    """The one among the names of augmentations that mixes examples."""
    entries = map(registries.AUGMENTATIONS.get, names)
    return next((entry for entry in entries if isinstance(entry, Mixing)), None)


def mix(
    mixing: Mixing, batch: Batch, ids: tf.Tensor, *, seed: int, epoch: tf.Tensor, alpha: float
) -> Batch:
    """Mixes the first half of a batch with the second half; returns the first half.

    Args:
        batch: examples, and as many partners; inputs are pictures.
        ids: int64 ``[batch]``.
        epoch: int64 ``[batch]``.
        alpha: of the distribution Beta(alpha, alpha) of the shares.
    """
    (images, partners), (own, other) = (tf.split(each, 2) for each in (batch.inputs, batch.targets))
    count = tf.shape(own)[0]
    draws = Draws(seed, epoch[:count], ids[:count], _DRAW)
    share = beta(draws(0, 2**31 - 1)[:, 0], alpha)
    images, share = mixing.mix(images, partners, share, draws)
    weights = tf.stack(tf.split(batch.weights, 2), axis=1)
    return Batch(images, Mixed(own, other, share, weights), tf.ones([count]))


def beta(draws: tf.Tensor, alpha: float) -> tf.Tensor:
    """Maps uniform integers below 2 ** 31 to shares of the distribution Beta(alpha, alpha)."""
    wanted = (tf.cast(draws, tf.float64) + 0.5) / 2**31
    low, high = tf.zeros_like(wanted), tf.ones_like(wanted)
    shape = tf.fill(tf.shape(wanted), tf.constant(alpha, tf.float64))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_low = tf.math.betainc(shape, shape, middle) < wanted
        low, high = tf.where(is_low, middle, low), tf.where(is_low, high, middle)
    return tf.cast((low + high) / 2, tf.float32)


def losses(targets: Any, of: Callable[[Any], tf.Tensor]) -> tf.Tensor:
    """The losses ``of(targets)``; of mixed examples, by the shares and weights of both targets.

    For cross entropy and equal weights, this is the loss of the mixed one-hot targets.
    """
    if not isinstance(targets, Mixed):
        return of(targets)
    own = of(targets.targets)
    share, weights = (tf.cast(each, own.dtype) for each in (targets.share, targets.weights))
    partners = of(targets.partners)
    return share * own * weights[:, 0] + (1 - share) * partners * weights[:, 1]


def main(targets: Any) -> Any:
    """The targets for metrics; of mixed examples, that with the larger share."""
    if not isinstance(targets, Mixed):
        return targets
    return tf.where(targets.share >= 0.5, targets.targets, targets.partners)
