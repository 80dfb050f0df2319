"""Inverted pictures."""

from __future__ import annotations

from typing import Any

from stagecraft.extend import Augmentation


class Invert(Augmentation):
    """Changes the sign of all channels, in half of the cases."""

    name = "invert"
    description = "inverts every second picture"

    def apply(self, images: Any, draws: Any) -> Any:
        """Draw 0 decides."""
        import tensorflow as tf

        signs = 1 - 2 * tf.cast(draws(0, 2), images.dtype)
        return images * signs[:, :, tf.newaxis, tf.newaxis]


INVERT = Invert()
