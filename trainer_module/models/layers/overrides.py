"""Checks a user's model for its own training code, which this project's loop would not call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.models.layers.walk import walk

_ADVICE = {
    "train_step": "move its code into the method call(), or into layers; add a loss with "
    "add_loss()",
    "test_step": "remove it: the evaluation computes the cross entropy and the accuracy",
    "predict_step": "move its code into the method call(): the exported model runs call()",
    "compute_loss": "add its terms with add_loss() in the method call(), or set "
    "train.label_smoothing",
    "compute_metrics": "remove it: the evaluation computes the cross entropy and the accuracy; the "
    "Evaluator computes the metrics of the EvalConfig",
    "make_train_function": "remove it: parallel.jit and parallel.accumulate set how a step runs",
    "make_test_function": "remove it",
    "fit": "remove it: train.epochs, train.batch_size and so on set the loop",
}
"""Method of ``keras.Model`` that this project does not call -> what works."""


class ModelRefusedError(UserError):
    """A part of ``train.model`` that the engines cannot run as Keras does, and why."""

    def __init__(self, part: str, reason: str, advice: str):
        super().__init__(
            f"train.model: {part} {reason}; {advice}",
            setting="train.model",
            value=part,
            suggestion=advice,
        )
        self.part = part
        self.reason = reason
        self.advice = advice


def check(models: Sequence[keras.Model]) -> None:
    """Refuses custom training code, layers with a state across batches, and compiled models."""
    for model in models:
        for path, layer in walk(model):
            if isinstance(layer, keras.layers.TFSMLayer):
                raise ModelRefusedError(
                    f"{path} (TFSMLayer)",
                    "runs a SavedModel, whose weights are on one device and in no checkpoint",
                    "create the layers and assign the weights, or load a .keras file",
                )
            if getattr(layer, "stateful", False):
                raise ModelRefusedError(
                    f"{path} ({type(layer).__name__})",
                    "is stateful: it continues from the previous batch, and batches are shuffled",
                    "set stateful=False",
                )
        for method, advice in _ADVICE.items():
            if (owner := _owner(model, method)) is not None:
                raise ModelRefusedError(
                    f"{owner}.{method}",
                    "would not be called, because Stagecraft has its own training loop",
                    advice,
                )
        if model.compiled:
            raise ModelRefusedError(
                model.name,
                f"is compiled ({_compiled_with(model)}), which has no effect here",
                "remove compile() (of a saved model: keras.models.load_model(…, "
                "compile=False)) and set train.optimizer, train.learning_rate and "
                "train.weight_decay; the loss is the cross entropy of the logits",
            )


def _owner(model: keras.Model, method: str) -> str | None:
    """Name of the class, other than Keras's, that defines a method; None: Keras does."""
    if method in vars(model):
        return model.name
    kind = next(kind for kind in type(model).__mro__ if method in vars(kind))
    package = kind.__module__.partition(".")[0]
    # KerasHub's own preprocesses, and then calls that of Keras.
    known = ("keras", "keras_hub") if method == "fit" else ("keras",)
    return None if package in known else kind.__name__


def _compiled_with(model: keras.Model) -> str:
    config: dict[str, Any] = {"optimizer": model.optimizer, "loss": model.loss}
    return ", ".join(f"{name}={_named(value)}" for name, value in config.items() if value)


def _named(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "name", type(value).__name__)
