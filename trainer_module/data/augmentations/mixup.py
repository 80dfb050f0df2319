"""Sums of two images (Zhang et al. 2018, "mixup: Beyond empirical risk minimization")."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.data.augmentation import Mixing


class Mixup(Mixing):
    """The weighted sum of an image and its partner, and of their losses."""

    name = "mixup"
    description = "mixes each image, and its label, with another of the batch; see mix_alpha"

    def mix(self, images: Any, partners: Any, share: Any, draws: Any) -> tuple[Any, Any]:
        """``share * image + (1 - share) * partner``."""
        import tensorflow as tf

        part = tf.reshape(share, [-1, 1, 1, 1])
        return part * images + (1 - part) * partners, share


MIXUP = Mixup()
