"""The linear model of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.trainer_module.models import table_layers
from stagecraft.trainer_module.models.family import ModelFamily


class Linear(ModelFamily):
    """A weight for each number and each category, as in ``LinearRegressor``."""

    name = "linear"
    description = "a table's linear model: a weight for each number and each category"
    pattern = "linear"
    examples = ("linear",)

    def build(
        self,
        numeric: Sequence[str],
        categorical: Mapping[str, int],
        outputs: int,
        lengths: Mapping[str, int] = table_layers.NONE,
        **sizes: Any,
    ) -> Any:
        """Builds the model; ``sizes`` is empty."""
        import keras

        given = table_layers.inputs(numeric, categorical, lengths)
        result = table_layers.linear(given, numeric, categorical, outputs)
        return keras.Model(given, result, name="linear")


LINEAR = Linear()
