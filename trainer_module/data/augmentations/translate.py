"""Random translations with reflected borders (Jordan 2024, "94% on CIFAR-10", section 3.1)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.data.augmentation import Augmentation


class Translate(Augmentation):
    """Moves an image of 32 by up to 2 pixels, one of any other side by a sixteenth of it.

    The border is the mirror image of what lies next to it, without the outermost pixel itself:
    such pixels have the statistics of the image, where the zeros of ``crop`` do not.
    """

    name = "translate"
    description = "moves the image by up to a sixteenth of its sides; reflections fill the border"
    order = 10
    moves = True

    def apply(self, images: Any, draws: Any) -> Any:
        """Draws 0 and 1 are the row and the column."""
        import tensorflow as tf

        height, width = images.shape[1], images.shape[2]
        rows = _reflected(tf.range(height)[tf.newaxis] + _shift(draws, 0, height // 16), height)
        columns = _reflected(tf.range(width)[tf.newaxis] + _shift(draws, 1, width // 16), width)
        # Rows first: they are contiguous.
        moved = tf.gather(images, rows, axis=1, batch_dims=1)
        return tf.gather(moved, columns, axis=2, batch_dims=1)


def _shift(draws: Any, draw: int, most: int) -> Any:
    """From ``-most`` to ``most``: int32 ``[batch, 1]``."""
    return draws(draw, 2 * most + 1) - most


def _reflected(positions: Any, side: int) -> Any:
    """-1 becomes 1, -2 becomes 2, and the same at the other end."""
    import tensorflow as tf

    return (side - 1) - tf.abs((side - 1) - tf.abs(positions))


TRANSLATE = Translate()
