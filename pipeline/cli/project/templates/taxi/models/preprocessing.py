"""The ``preprocessing_fn`` of Transform."""

from typing import Any

from models.task import TAXI


def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """Transforms raw columns into the inputs of the model, as ``TAXI`` declares them.

    Change raw columns here, before the call. A column with missing values is a
    ``tf.SparseTensor``.
    """
    return TAXI.preprocess(inputs)
