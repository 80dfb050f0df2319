"""Muon as an optimizer of Keras."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.models import matrices
from stagecraft.trainer_module.models.matrices import Matrix
from stagecraft.trainer_module.optimization import make_optimizer
from stagecraft.trainer_module.optimization.optimizers import muon
from stagecraft.trainer_module.optimization.optimizers.parts.part_optimizer import PartOptimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial ``a x + b x³ + c x⁵`` (Jordan et al. 2024)."""

EPSILON = 1e-7
"""Added to norms: a matrix of zeros stays one."""


@keras.saving.register_keras_serializable("stagecraft")
class Muon(PartOptimizer):
    """Muon for the kernels of hidden layers, and another optimizer for the other weights.

    Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks",
    https://kellerjordan.github.io/posts/muon/. A step moves a kernel by an orthogonal matrix near
    the gradient's momentum; the kernel ``[height, width, in, out]`` of a convolution is the matrix
    ``[out, height * width * in]``. Output layers, embeddings, biases, norms and the kernels of
    depthwise convolutions are other weights.
    """

    def __init__(
        self,
        learning_rate: Any = 0.02,
        momentum: float = muon.MOMENTUM,
        nesterov: bool = True,
        iterations: int = muon.ITERATIONS,
        normalize_weights: bool = False,
        rate_factor: float = 1.0,
        exclude: str | Sequence[str] | None = None,
        others: Any = None,
        weight_decay: float | None = None,
        name: str = "muon",
        **base: Any,
    ):
        """Makes the optimizer.

        Args:
            learning_rate: of all weights, as a number or a schedule of Keras.
            momentum: of Muon; 0: none, and no slot.
            nesterov: whether Muon looks one step ahead.
            iterations: of Newton-Schulz.
            normalize_weights: whether a step first scales a kernel to the Frobenius norm
                ``sqrt(out)``, in place of scaling its update by ``sqrt(max(1, out / in))``.
            rate_factor: factor on the learning rate, and so on the weight decay, of the kernels
                that Muon updates.
            exclude: regular expressions; a kernel is one of the other weights if one of them is
                found in its path. None: the kernels of the model's output layers.
            others: optimizer of the other weights: an object, its configuration or name; None:
                SGD with Nesterov momentum 0.9. Its learning rate and weight decay do not count.
            weight_decay: of all weights, decoupled.
            base: other arguments of ``keras.optimizers.Optimizer``.

        Raises:
            ValueError: an argument is invalid.
        """
        super().__init__(self._of_weight, learning_rate, weight_decay, name=name, **base)
        given = {
            "momentum": momentum,
            "nesterov": nesterov,
            "iterations": iterations,
            "normalize_weights": normalize_weights,
            "rate_factor": rate_factor,
            "exclude": exclude,
        }
        for argument, value in given.items():
            if problem := muon.problem_with(argument, value):
                raise ValueError(f"{argument}: {value!r} {problem}")
        if others is None:
            others = keras.optimizers.SGD(momentum=0.9, nesterov=True)
        given["others"] = keras.optimizers.serialize(keras.optimizers.get(others))
        # As text: Keras tracks the objects, mappings and lists among its attributes.
        self._given = json.dumps(given)
        self._exclude, self._factor = muon.patterns(exclude), rate_factor

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Makes the slots of all weights."""
        if self.built:
            return
        super().build(variables)
        make_optimizer.apply(self, [self._factor if self._is_muons(v) else 1.0 for v in variables])

    def check_weights(self, weights: Sequence[keras.Variable]) -> None:
        """Checks ``exclude`` against all trained weights of a model; engines call it.

        Raises:
            SettingError: a pattern excludes no kernel, or no kernel is left.
        """
        muon.check_weights(self._exclude, weights, "train.optimizer", "muon")

    def get_config(self) -> dict[str, Any]:
        """The configuration from which Keras makes a copy of this optimizer."""
        return {**super().get_config(), **json.loads(self._given)}

    def _is_muons(self, weight: keras.Variable) -> bool:
        return not matrices.excluded(weight, self._exclude)

    def _of_weight(self, weight: keras.Variable) -> keras.optimizers.Optimizer:
        given = json.loads(self._given)
        if not self._is_muons(weight):
            return keras.optimizers.deserialize(given["others"])
        names = ("momentum", "nesterov", "iterations", "normalize_weights")
        return _MatrixOptimizer(**{name: given[name] for name in names})


class _MatrixOptimizer(keras.optimizers.Optimizer):
    """Muon's update of one kernel: momentum, then an orthogonal matrix (Jordan et al. 2024).

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
        order = _Order(self._matrices[place], variable.shape)
        update = orthogonalize(order.matrices(gradient), self.iterations_of_update)
        rate = tf.cast(learning_rate, dtype)
        if self.normalize_weights:
            weight = order.matrices(tf.convert_to_tensor(variable))
            norm = _norm(weight) + EPSILON
            weight = weight * (math.sqrt(order.outputs) / norm) - rate * update
            self.assign(variable, order.kernel(weight))
        else:
            scale = math.sqrt(max(1.0, order.outputs / order.inputs))
            self.assign_sub(variable, order.kernel(rate * scale * update))


class _Order:
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


def _norm(matrices: tf.Tensor) -> tf.Tensor:
    """Frobenius norms ``[..., 1, 1]`` of matrices ``[..., rows, columns]``."""
    return tf.norm(matrices, axis=(-2, -1), keepdims=True)


def orthogonalize(matrices: tf.Tensor, iterations: int) -> tf.Tensor:
    """Matrices with the same singular vectors, and singular values of about 1.

    It is the quintic Newton-Schulz iteration of Jordan et al. 2024, see :class:`Muon`. An iteration
    applies the polynomial of :data:`COEFFICIENTS` to each singular value. It is steep at 0, and
    does not converge: after five iterations, singular values between 0.002 and 1 of the norm are
    between 0.68 and 1.21. Products of matrices are those of the shorter side.

    Args:
        matrices: ``[..., rows, columns]``, float32 or float64.

    Returns:
        The same shape and dtype.
    """
    a, b, c = COEFFICIENTS
    found = matrices / (_norm(matrices) + EPSILON)
    wide = matrices.shape[-2] <= matrices.shape[-1]
    for _ in range(iterations):
        square = tf.matmul(found, found, transpose_a=not wide, transpose_b=wide)
        polynomial = b * square + c * tf.matmul(square, square)
        product = tf.matmul(polynomial, found) if wide else tf.matmul(found, polynomial)
        found = a * found + product
    return found
