"""Muon as an optimizer of Keras."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import keras

from stagecraft.trainer_module.models import matrices
from stagecraft.trainer_module.optimization import make_optimizer
from stagecraft.trainer_module.optimization.optimizers.muon import arguments
from stagecraft.trainer_module.optimization.optimizers.muon.matrix_optimizer import MatrixOptimizer
from stagecraft.trainer_module.optimization.optimizers.parts.part_optimizer import PartOptimizer


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
        momentum: float = arguments.MOMENTUM,
        nesterov: bool = True,
        iterations: int = arguments.ITERATIONS,
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
            if problem := arguments.problem(argument, value):
                raise ValueError(f"{argument}: {value!r} {problem}")
        if others is None:
            others = keras.optimizers.SGD(momentum=0.9, nesterov=True)
        given["others"] = keras.optimizers.serialize(keras.optimizers.get(others))
        # As text: Keras tracks the objects, mappings and lists among its attributes.
        self._given = json.dumps(given)
        self._exclude, self._factor = arguments.patterns(exclude), rate_factor

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
        arguments.check_weights(self._exclude, weights, "train.optimizer", "muon")

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
        return MatrixOptimizer(**{name: given[name] for name in names})
