"""The base of augmentations. Imports no TensorFlow."""

from __future__ import annotations

import abc
import zlib
from typing import Any

from stagecraft.common.registry import Entry


class Augmentation(Entry):
    """Base of the names in ``train.augment``: a file in ``augmentations/``, or an entry point."""

    order = 100
    """Augmentations with lower numbers come first, those of one number by name."""

    moves: bool = False
    """Whether it moves pixels: a mask then moves with its picture."""

    mixes: bool = False
    """Whether it is a :class:`Mixing`."""

    excludes: tuple[str, ...] = ()
    """Names of augmentations that would undo it."""

    @property
    def first_draw(self) -> int:
        """Number of its first draw; depends only on its name, so augmentations are independent."""
        return 1000 + 1000 * zlib.crc32(self.name.encode())

    @abc.abstractmethod
    def apply(self, images: Any, draws: Any) -> Any:
        """Augments a batch, each image by its own draws.

        Its file imports TensorFlow inside this method only.

        Args:
            images: float32 ``[batch, height, width, channels]``; zero is the mean.
            draws: :class:`~stagecraft.trainer_module.data.augment.Draws`: ``draws(0, 2)`` is 0 or 1
                for each image, int32 ``[batch, 1]``; ``draws.epoch`` is int64 ``[batch]``.

        Returns:
            float32 of the same shape.
        """


class Mixing(Augmentation):
    """An augmentation that mixes each example with a partner, after all others."""

    order = 1000
    mixes = True

    def apply(self, images: Any, draws: Any) -> Any:
        """Leaves the images: they are mixed when the whole batch is augmented."""
        return images

    @abc.abstractmethod
    def mix(self, images: Any, partners: Any, share: Any, draws: Any) -> tuple[Any, Any]:
        """Mixes images with their partners.

        Its file imports TensorFlow inside this method only.

        Args:
            images: float32 ``[batch, height, width, channels]``.
            partners: of the same shape.
            share: float32 ``[batch]``, from Beta(alpha, alpha): of the image.
            draws: as in :meth:`apply`; number 0 is taken.

        Returns:
            The mixed images, and the share of each image in its targets: float32 ``[batch]``.
        """
