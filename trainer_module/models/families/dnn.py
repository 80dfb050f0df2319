"""Dense layers on a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.trainer_module.models import table_layers
from stagecraft.trainer_module.models.family import ModelFamily


class Dnn(ModelFamily):
    """Dense layers on the numbers and on embeddings of the categories, as in ``DNNRegressor``."""

    name = "dnn"
    description = "dense layers on a table's numbers and embedded categories"
    pattern = r"dnn(_\d+)+"
    examples = ("dnn_64_32",)

    def sizes(self, name: str) -> dict[str, Any] | None:
        """``units`` of each layer, in order."""
        units = table_layers.parsed_units("dnn", name)
        return {"units": units} if units else None

    def build(
        self,
        numeric: Sequence[str],
        categorical: Mapping[str, int],
        outputs: int,
        *,
        units: Sequence[int],
    ) -> Any:
        """Builds the model."""
        import keras

        given = table_layers.inputs(numeric, categorical)
        result = table_layers.deep(given, numeric, categorical, units, outputs)
        return keras.Model(given, result, name="dnn")


DNN = Dnn()
