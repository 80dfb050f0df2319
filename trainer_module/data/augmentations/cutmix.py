"""Patches of other images (Yun et al. 2019, "CutMix", section 3.1)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.data.augmentation import Mixing


class Cutmix(Mixing):
    """A rectangle of the partner in the image; part of it may lie outside."""

    name = "cutmix"
    description = "replaces a rectangle of each image by that of another one; see mix_alpha"

    def mix(self, images: Any, partners: Any, share: Any, draws: Any) -> tuple[Any, Any]:
        """Draws 1 and 2 are the centre; the share is that of the pixels that stay."""
        import tensorflow as tf

        height, width = images.shape[1:3]
        side = tf.sqrt(1 - share)[:, tf.newaxis]
        rows = _covered(draws(1, height), side, height)
        columns = _covered(draws(2, width), side, width)
        patch = tf.logical_and(rows[:, :, tf.newaxis], columns[:, tf.newaxis, :])
        kept = 1 - tf.reduce_mean(tf.cast(patch, tf.float32), axis=[1, 2])
        return tf.where(patch[..., tf.newaxis], partners, images), kept


def _covered(center: Any, side: Any, size: int) -> Any:
    """The positions that the rectangle covers: bool ``[batch, size]``.

    Args:
        center: int32 ``[batch, 1]``.
        side: of the rectangle by ``size``: float32 ``[batch, 1]``.
    """
    import tensorflow as tf

    half = tf.cast(side * size, tf.int32) // 2
    positions = tf.range(size)[tf.newaxis]
    return tf.logical_and(positions >= center - half, positions < center + half)


CUTMIX = Cutmix()
