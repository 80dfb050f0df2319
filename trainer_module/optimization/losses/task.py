"""The default loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.optimization.loss import Loss, Losses
from stagecraft.trainer_module.settings import TrainSettings


class OfTask(Loss):
    """The loss of the task."""

    name = "task"
    description = "the loss of the task"
    smooths = True

    def make(self, task: Task, arguments: Mapping[str, Any], train: TrainSettings) -> Losses:
        """``Task.losses``."""
        return lambda outputs, targets, dtype, smoothed: task.losses(
            outputs, targets, dtype, train if smoothed else None
        )


TASK = OfTask()
