"""A linear model and dense layers on a table, trained as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.trainer_module.models import table_layers


class WideDeep(table_layers.DeepFamily):
    """The sum of a linear model and dense layers (Cheng et al. 2016, arXiv:1606.07792)."""

    name = "wide_deep"
    description = "a table's linear model plus dense layers on embedded categories"
    pattern = r"wide_deep(_\d+)+"
    examples = ("wide_deep_64_32",)

    def result(
        self,
        given: Mapping[str, Any],
        numeric: Sequence[str],
        categorical: Mapping[str, int],
        units: Sequence[int],
        outputs: int,
    ) -> Any:
        """The sum of both."""
        from keras import layers

        wide = table_layers.linear(given, numeric, categorical, outputs)
        deep = table_layers.deep(given, numeric, categorical, units, outputs)
        return layers.Add(name=table_layers.free("sum", given))([wide, deep])


WIDE_DEEP = WideDeep()
