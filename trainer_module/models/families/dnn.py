"""Dense layers on a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.trainer_module.models import table_layers


class Dnn(table_layers.DeepFamily):
    """Dense layers on the numbers and on embeddings of the categories, as in ``DNNRegressor``."""

    name = "dnn"
    description = "dense layers on a table's numbers and embedded categories"
    pattern = r"dnn(_\d+)+"
    examples = ("dnn_64_32",)

    def result(
        self,
        given: Mapping[str, Any],
        numeric: Sequence[str],
        categorical: Mapping[str, int],
        units: Sequence[int],
        outputs: int,
    ) -> Any:
        """The dense layers."""
        return table_layers.deep(given, numeric, categorical, units, outputs)


DNN = Dnn()
