"""A linear model and dense layers on a table, trained as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.trainer_module.models import table_layers
from stagecraft.trainer_module.models.family import ModelFamily


class WideDeep(ModelFamily):
    """The sum of a linear model and dense layers (Cheng et al. 2016, arXiv:1606.07792)."""

    name = "wide_deep"
    description = "a table's linear model plus dense layers on embedded categories"
    pattern = r"wide_deep(_\d+)+"
    examples = ("wide_deep_64_32",)

    def sizes(self, name: str) -> dict[str, Any] | None:
        """``units`` of each dense layer, in order."""
        units = table_layers.parsed_units("wide_deep", name)
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
        from keras import layers

        given = table_layers.inputs(numeric, categorical)
        wide = table_layers.linear(given, numeric, categorical, outputs)
        deep = table_layers.deep(given, numeric, categorical, units, outputs)
        result = layers.Add(name="sum")([wide, deep])
        return keras.Model(given, result, name="wide_deep")


WIDE_DEEP = WideDeep()
