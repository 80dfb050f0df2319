"""Random mirror images."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.data.augmentation import Augmentation


class Flip(Augmentation):
    """Left and right change places, in half of the cases."""

    name = "flip"
    description = "swaps left and right of every second image"
    order = 20
    moves = True
    first_draw = 2

    def apply(self, images: Any, draws: Any) -> Any:
        """Draw 0 decides."""
        import tensorflow as tf

        # Reverse has a fast path for the second of three dimensions (reverse_op.cc). It costs less
        # to mirror all images than to look up each pixel of half of them.
        rows = tf.reshape(images, [-1, *images.shape[2:]])
        mirrored = tf.reshape(tf.reverse(rows, axis=[1]), tf.shape(images))
        # The first version of where copies whole images; the second one broadcasts the condition.
        return tf.compat.v1.where(draws(0, 2)[:, 0] == 1, mirrored, images)


FLIP = Flip()
