"""What a user's model says about its training, which this project's loop would not do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.models.layers.refusal import ModelRefusedError

_ADVICE = {
    "train_step": "do the same in call, or in layers; a loss of your own belongs into add_loss",
    "test_step": "leave it out: evaluation takes the cross entropy and the accuracy",
    "predict_step": "do the same in call: the exported model runs it",
    "compute_loss": "add what it adds with add_loss in call, or set train.label_smoothing",
    "compute_metrics": "leave it out: evaluation takes the cross entropy and the accuracy, and "
    "the Evaluator what the pipeline's EvalConfig names",
    "make_train_function": "leave it out: parallel.jit and parallel.accumulate set how a step runs",
    "make_test_function": "leave it out",
    "fit": "leave it out: train.epochs, train.batch_size and so on set the loop",
}
"""Method of ``keras.Model`` that this project does not call -> what works."""


def check(models: Sequence[keras.Model]) -> None:
    """Looks at a model, or at models that are chained.

    Raises:
        ModelRefusedError: one is compiled, has a training step, loss or metric of its own, or a
            layer that goes on from the batch before.
    """
    for model in models:
        for path, layer in dropout.walk(model):
            if isinstance(layer, keras.layers.TFSMLayer):
                raise ModelRefusedError(
                    f"{path} (TFSMLayer)",
                    "runs a SavedModel, whose weights are on no other device and in no checkpoint",
                    "make the layers anew and give them the weights, or load a .keras file",
                )
            if getattr(layer, "stateful", False):
                raise ModelRefusedError(
                    f"{path} ({type(layer).__name__})",
                    "is stateful: it goes on from the batch before, and batches here are shuffled",
                    "set stateful=False",
                )
        for method, advice in _ADVICE.items():
            if (owner := _owner(model, method)) is not None:
                raise ModelRefusedError(
                    f"{owner}.{method}",
                    "would not be called: this project has a training loop of its own",
                    advice,
                )
        if model.compiled:
            raise ModelRefusedError(
                model.name,
                f"is compiled ({_compiled_with(model)}), which would not count",
                "leave compile() out (of a saved model: keras.models.load_model(…, "
                "compile=False)) and set train.optimizer, train.learning_rate and "
                "train.weight_decay; the loss is the cross entropy of the logits",
            )


def _owner(model: keras.Model, method: str) -> str | None:
    """The name of the class, other than Keras's, that has a method; None: Keras's own counts."""
    if method in vars(model):
        return model.name
    kind = next(kind for kind in type(model).__mro__ if method in vars(kind))
    return None if kind.__module__.partition(".")[0] == "keras" else kind.__name__


def _compiled_with(model: keras.Model) -> str:
    config: dict[str, Any] = {"optimizer": model.optimizer, "loss": model.loss}
    return ", ".join(f"{name}={_named(value)}" for name, value in config.items() if value)


def _named(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "name", type(value).__name__)
