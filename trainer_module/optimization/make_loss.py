"""The loss that a training uses: one for all outputs, or a weighted sum over the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.common.errors import SettingError, UserError, said
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.optimization.loss import Loss, Losses
from stagecraft.trainer_module.settings import TrainSettings


def make_loss(task: Task, train: TrainSettings) -> Losses:
    """The function of ``train.loss``.

    Raises:
        UserError: the user's loss cannot be made.
    """
    parts = []
    for output, (name, arguments) in train.losses.items():
        loss: Loss = registries.LOSSES.get(name)
        weight = train.loss_weights.get(output, 1.0)
        parts.append((output, weight, loss.make(task, arguments, train)))
    if [output for output, *_ in parts] == [""]:
        return parts[0][2]

    def losses(outputs: Nest, targets: Nest, dtype: Any, smoothed: bool) -> Any:
        return tf.add_n(
            [
                weight * loss(_at(outputs, output), _at(targets, output), dtype, smoothed)
                for output, weight, loss in parts
            ]
        )

    return losses


def check_loss(task: Task, train: TrainSettings, outputs: Nest, targets: Nest) -> None:
    """Checks that the loss of each of some examples is the same alone and in their batch.

    Raises:
        UserError: it is not, or the loss fails.
    """
    _check_outputs(train, outputs)
    losses = make_loss(task, train)

    def of(part: slice) -> np.ndarray:
        given, wanted = (
            tf.nest.map_structure(lambda each: each[part], nest) for nest in (outputs, targets)
        )
        return np.asarray(losses(given, wanted, tf.float64, True))

    count = len(tf.nest.flatten(targets)[0])
    try:
        whole = of(slice(count))
        alone = [of(slice(index, index + 1)) for index in range(count)]
    except UserError:
        raise
    except Exception as error:  # whatever Keras or the user's function raises
        raise SettingError("train.loss", train.loss, f"fails: {said(error)}") from error
    if whole.shape == (count,) and np.allclose(
        whole, np.reshape(alone, -1), rtol=1e-4, atol=1e-6, equal_nan=True
    ):
        return
    axes = list(range(1, tf.nest.flatten(outputs)[0].shape.rank))
    raise SettingError(
        "train.loss",
        train.loss,
        "gives an example different losses alone and in a batch; each device has only a part of "
        "the batch, so the loss of an example must not depend on the others",
        f"train.loss_args: {{axis: {axes}}}"
        if train.loss in ("dice", "tversky")
        else "a loss that returns [batch, …], one value for each example",
    )


def _check_outputs(train: TrainSettings, outputs: Nest) -> None:
    known = [""]
    if isinstance(outputs, Mapping):
        known = list(outputs)
    elif isinstance(outputs, (tuple, list)):
        known = [str(index) for index in range(len(outputs))]
    for output in train.losses:
        if output not in known:
            problem = (
                f"names the output {output!r}, which the model does not have"
                if output
                else "is one loss, but the model has several outputs"
            )
            use = f"a mapping with {', '.join(known)}" if known[0] else "the name of one loss"
            raise SettingError("train.loss", train.loss, problem, use)


def _at(nest: Nest, output: str) -> Nest:
    return nest[output] if isinstance(nest, Mapping) else nest[int(output)]
