"""A stage of a replica: its variables, slots and EMA weights, all on one device.

    replica 0:  stage(0, 0) on CPU:0 -> stage(0, 1) on CPU:1 -> stage(0, 2) on CPU:2
    replica 1:  stage(1, 0) on CPU:3 -> stage(1, 1) on CPU:4 -> stage(1, 2) on CPU:5

Replicas are the rows of the grid, stages its columns; a column holds equal variables, bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.models.stages.stage import Stage
from stagecraft.trainer_module.optimization import clipping, ema, gradient_noise, slots
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer
from stagecraft.trainer_module.settings import TrainSettings

SCOPE = "replica{replica}_stage{stage}"
"""Name scope of all ops of a stage replica; the placement check goes by it."""


class StageReplica:
    """One replica (row) of one stage (column), with its variables on ``device``."""

    def __init__(self, stage: Stage, device: str, replica: int, number: int, train: TrainSettings):
        self.stage = stage
        self._train = train
        self.device = device
        self._scope = SCOPE.format(replica=replica, stage=number)
        with tf.device(device):
            self.weights = [_copy(variable) for variable in stage.trainable]
            self.state = [_copy(variable) for variable in stage.state]
            self.connected = [True] * len(self.weights)
            """Which weights have a gradient; known when the backward pass has been traced."""
            self.optimizer = make_optimizer(train, self.weights) if self.weights else None
            self.ema_weights = ema.create(self.weights if train.ema_decay else [])

    @contextlib.contextmanager
    def scope(self, part: str, after: Sequence[Any] = ()) -> Iterator[None]:
        """Ops made in it run on its device, once ``after`` has been computed."""
        with (
            tf.device(self.device),
            tf.name_scope(f"{self._scope}/{part}/"),
            tf.control_dependencies(list(after)),
        ):
            yield

    def read(self) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Weights and state as tensors, read once a step."""
        with self.scope("read"):
            return (
                [tf.identity(variable.value) for variable in self.weights],
                [tf.identity(variable.value) for variable in self.state],
            )

    def averaged(self) -> list[tf.Tensor]:
        """The weights that are evaluated: EMA weights where EMA is on."""
        return [tf.convert_to_tensor(v) for v in self.ema_weights or self.weights]

    @property
    def shared(self) -> frozenset[str]:
        """Names in a checkpoint of what the optimizers of all stages have alike."""
        return slots.shared(self.optimizer) if self.optimizer else frozenset()

    def update(
        self,
        gradients: Sequence[tf.Tensor],
        changed: Mapping[int, tf.Tensor],
        rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """Assigns what layers ``changed``, by index in ``Stage.variables``; applies gradients.

        Gradients are scaled already, to limit the norm over all stages.
        """
        if self._train.clip_value:
            gradients = clipping.by_value(gradients, self._train.clip_value)
        if self._train.gradient_noise:
            paths = [weight.path for weight in self.weights]
            eta, seed = self._train.gradient_noise, self._train.seed
            gradients = gradient_noise.added(gradients, paths, eta, seed, step)
        variables = [*self.weights, *self.state]
        for index, value in changed.items():
            variables[index].assign(value)
        if self.optimizer:
            self.optimizer.learning_rate.assign(rate)
            self.optimizer.iterations.assign(step)
            pairs = zip(gradients, self.weights, self.connected, strict=True)
            used = [(gradient, weight) for gradient, weight, is_used in pairs if is_used]
            if used:
                self.optimizer.apply(*map(list, zip(*used, strict=True)))
            else:  # keeps the step count equal to that of other stages
                self.optimizer.iterations.assign(step + 1)

    def update_ema(self, decay: tf.Tensor) -> None:
        """Moves the EMA weights."""
        for average, variable in zip(self.ema_weights, self.weights, strict=True):
            ema.move(average, variable.value, decay)

    def named(self) -> list[tuple[str, Any]]:
        """Name in a checkpoint -> variable."""
        averages = zip(self.weights, self.ema_weights, strict=False)
        return [
            *((f"model/{variable.path}", variable) for variable in (*self.weights, *self.state)),
            *(slots.named(self.optimizer) if self.optimizer else ()),
            *((f"ema/{variable.path}", average) for variable, average in averages),
        ]


def _copy(variable: keras.Variable) -> keras.Variable:
    """A variable of the same path, value and role on the current device."""
    *parents, name = variable.path.split("/")
    with contextlib.ExitStack() as scopes:
        for parent in parents:
            scopes.enter_context(keras.name_scope(parent))
        copy = keras.Variable(
            tf.identity(variable.value),
            trainable=variable.trainable,
            dtype=variable.dtype,
            name=name,
        )
    copy.constraint = variable.constraint
    return copy
