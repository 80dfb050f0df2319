"""Muon's update of one kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.models import matrices
from stagecraft.trainer_module.models.matrices import Matrix
from stagecraft.trainer_module.optimization.optimizers.muon import newton_schulz


class MatrixOptimizer(keras.optimizers.Optimizer):
    """Momentum, then an orthogonal matrix (Jordan et al. 2024).

    With gradient ``g``, momentum ``m`` and rate ``r``, a step is::

        v = m v + g
        weight -= r s orthogonalize(g + m v)      # without Nesterov: orthogonalize(v)

    ``s`` is ``sqrt(max(1, outputs / inputs))``. With ``normalize_weights``, ``s`` is 1, and a step
    first scales the weight to the norm ``sqrt(outputs)``, as the recipe of Jordan for CIFAR-10 does
    (``airbench94_muon.py`` in github.com/KellerJordan/cifar10-airbench).
    """

    def __init__(
        self, momentum: float, nesterov: bool, iterations: int, normalize_weights: bool
    ) -> None:
        """The caller of ``update_step`` gives the learning rate."""
        super().__init__(learning_rate=1.0, name="muon")
        self.momentum, self.nesterov = momentum, nesterov
        self.iterations_of_update, self.normalize_weights = iterations, normalize_weights

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Makes a slot for each kernel, unless the momentum is 0."""
        if self.built:
            return
        super().build(variables)
        self._matrices = [matrices.of(variable) for variable in variables]
        self._velocities = (
            [self.add_variable_from_reference(v, name="momentum") for v in variables]
            if self.momentum
            else []
        )

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates a kernel."""
        place = self._get_variable_index(variable)
        dtype = variable.dtype
        gradient = tf.cast(gradient, dtype)
        if self.momentum:
            velocity = self._velocities[place]
            self.assign(velocity, self.momentum * tf.convert_to_tensor(velocity) + gradient)
            moved = tf.convert_to_tensor(velocity)
            gradient = gradient + self.momentum * moved if self.nesterov else moved
        order = Order(self._matrices[place], variable.shape)
        update = newton_schulz.orthogonalize(order.matrices(gradient), self.iterations_of_update)
        rate = tf.cast(learning_rate, dtype)
        if self.normalize_weights:
            weight = order.matrices(tf.convert_to_tensor(variable))
            norm = newton_schulz.norm(weight) + newton_schulz.EPSILON
            weight = weight * (math.sqrt(order.outputs) / norm) - rate * update
            self.assign(variable, order.kernel(weight))
        else:
            scale = math.sqrt(max(1.0, order.outputs / order.inputs))
            self.assign_sub(variable, order.kernel(rate * scale * update))


class Order:
    """Reads a kernel as matrices ``[separate, inputs, outputs]``, and back.

    The transposed matrix of the literature, so that most kernels need no transposition: the
    orthogonal matrix of a transposed one is the transposed orthogonal matrix.
    """

    def __init__(self, matrix: Matrix, shape: Sequence[int]):
        """``shape``: of the kernel."""
        own = {*matrix.outputs, *matrix.separate}
        inputs = [axis for axis in range(len(shape)) if axis not in own]
        self._order = [*matrix.separate, *inputs, *matrix.outputs]
        self._shape = [shape[axis] for axis in self._order]
        self._back = [self._order.index(axis) for axis in range(len(shape))]
        self.inputs = math.prod(shape[axis] for axis in inputs)
        """Columns of a matrix in the literature."""
        self.outputs = math.prod(shape[axis] for axis in matrix.outputs)
        """Rows of a matrix in the literature."""

    def matrices(self, kernel: tf.Tensor) -> tf.Tensor:
        """``[separate, inputs, outputs]``."""
        return tf.reshape(tf.transpose(kernel, self._order), [-1, self.inputs, self.outputs])

    def kernel(self, found: tf.Tensor) -> tf.Tensor:
        """The inverse of :meth:`matrices`."""
        return tf.transpose(tf.reshape(found, self._shape), self._back)
