"""What a learning-rate schedule is. Imports no TensorFlow."""

from __future__ import annotations

import abc
from typing import Any

from stagecraft.schemas.registry import Entry


class Schedule(Entry):
    """Base of the values of ``train.schedule``: a file in ``schedules/``, or an entry point."""

    default_warmup = 0.0
    """Share of all steps to warm up for, where ``train.warmup_steps`` is 0."""

    depends_on_length = True
    """Whether the rate of a step depends on how many steps the training has."""

    @abc.abstractmethod
    def decay(self, progress: Any) -> Any:
        """Factor on the learning rate after the warm-up, 1 at its start.

        Its file imports TensorFlow inside this method only.

        Args:
            progress: scalar tensor, from 0 after the warm-up to 1 at the end.
        """
