"""Layers of canned models, with Estimator's meaning of a missing value: it adds nothing."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable("stagecraft.estimator")
class Rows(keras.layers.Layer):
    """A row of a table for each id: ``[batch, 1]`` to ``[batch, width]``; zeros for other ids."""

    def __init__(self, ids: int, width: int, initializer: Any = "zeros", **options: Any):
        """``ids``: number of rows; an id from there on is a missing value."""
        super().__init__(**options)
        self.ids, self.width = ids, width
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape: Any) -> None:
        """Makes the table."""
        shape = (self.ids, self.width)
        self.embeddings = self.add_weight(
            shape=shape, initializer=self.initializer, name="embeddings"
        )

    def call(self, ids: Any) -> Any:
        """The rows."""
        ids = ops.squeeze(ids, -1)
        there = ids < self.ids
        rows = ops.take(self.embeddings, ops.where(there, ids, ops.zeros_like(ids)), axis=0)
        return ops.where(there[:, None], rows, ops.zeros_like(rows))

    def compute_output_shape(self, input_shape: Any) -> Any:
        """``[batch, width]``."""
        return (input_shape[0], self.width)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        initializer = keras.initializers.serialize(self.initializer)
        own = {"ids": self.ids, "width": self.width, "initializer": initializer}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("stagecraft.estimator")
class OneHot(keras.layers.Layer):
    """Ones and zeros: ``[batch, 1]`` ids to ``[batch, ids]``; zeros for other ids."""

    def __init__(self, ids: int, **options: Any):
        super().__init__(**options)
        self.ids = ids

    def call(self, ids: Any) -> Any:
        """A one in the column of the id."""
        return ops.one_hot(ops.squeeze(ids, -1), self.ids, dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """``[batch, ids]``."""
        return (input_shape[0], self.ids)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return {**super().get_config(), "ids": self.ids}


@keras.saving.register_keras_serializable("stagecraft.estimator")
class Bias(keras.layers.Layer):
    """Adds a number to learn to each output: ``[batch, outputs]``."""

    def build(self, input_shape: Any) -> None:
        """Makes the bias."""
        self.bias = self.add_weight(shape=(input_shape[-1],), initializer="zeros", name="bias")

    def call(self, values: Any) -> Any:
        """The sum."""
        return values + self.bias
