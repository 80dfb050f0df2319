"""Computes the number of steps of a training, and of the steps between two evaluations."""

from __future__ import annotations

from stagecraft.trainer_module.settings import TrainSettings

DEFAULT_EPOCHS = 10.0
"""Used if the settings have neither steps nor epochs."""


def total_steps(train: TrainSettings, num_examples: int) -> int:
    """Optimizer steps of the whole training."""
    if train.steps is not None:
        return train.steps
    epochs = DEFAULT_EPOCHS if train.epochs is None else train.epochs
    return max(1, round(epochs * num_examples / train.batch_size))


def steps_between_evaluations(train: TrainSettings, num_examples: int) -> int:
    """``eval_every``, or the steps of one epoch."""
    return train.eval_every or max(1, round(num_examples / train.batch_size))
