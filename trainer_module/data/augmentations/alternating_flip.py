"""Mirror images in every second epoch (Jordan 2024, "94% on CIFAR-10", section 3.6)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.data.augmentation import Augmentation


class AlternatingFlip(Augmentation):
    """Left and right change places in every second epoch of an image.

    A hash of seed and id decides whether that is in the odd or in the even epochs. Two neighbouring
    epochs together show both views of each image; ``flip`` shows half of the images twice alike.
    """

    name = "alternating_flip"
    description = "swaps left and right of each image in every second epoch"
    order = 20
    moves = True
    excludes = ("flip",)

    def apply(self, images: Any, draws: Any) -> Any:
        """Draw 0 of the example, whatever the epoch, decides which epochs."""
        import tensorflow as tf

        width = images.shape[2]
        columns = tf.range(width)[tf.newaxis]
        parity = tf.cast(draws.epoch % 2, tf.int32)[:, tf.newaxis]
        flipped = (draws.in_all_epochs()(0, 2) + parity) % 2 == 1
        columns = tf.where(flipped, width - 1 - columns, columns)
        return tf.gather(images, columns, axis=2, batch_dims=1)


ALTERNATING_FLIP = AlternatingFlip()
