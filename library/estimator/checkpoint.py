"""Weights from the checkpoint of an Estimator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from stagecraft.estimator.canned import Canned

if TYPE_CHECKING:
    import numpy as np


def load(checkpoint: str | os.PathLike[str], model: Canned | Any) -> dict[str, np.ndarray]:
    """The weights for a model, by variable path; changes nothing.

    ``train.initial_weights`` takes the same checkpoint, and starts a training with it.

    Args:
        checkpoint: such as ``model_dir/model.ckpt-1000``.
        model: a canned model of ``sc.estimator``; or a ``keras.Model`` whose variable paths are
            the names in the checkpoint.

    Raises:
        InitialWeightsError: it is no checkpoint of an Estimator, or does not match the model. The
            subclass ``MismatchError`` names the variables.
    """
    from stagecraft.trainer_module.models.initial_weights import (
        estimator_checkpoint,
        loading,
        source,
    )

    found = source.find(os.fspath(checkpoint))
    if found.kind is not source.Kind.ESTIMATOR:
        problem = f"is {found.kind.value}, not the checkpoint of an Estimator"
        raise source.InitialWeightsError(found.path, problem)
    built = model.build() if isinstance(model, Canned) else model
    variables = {each.path: tuple(each.shape) for each in built.weights}
    values = estimator_checkpoint.read(found.path, variables)
    return loading.match(found.path, values, variables, ())
