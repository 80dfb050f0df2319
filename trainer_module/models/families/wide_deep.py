"""A linear model and dense layers on a table, trained as one."""

from __future__ import annotations

from stagecraft.trainer_module.models.table_layers import DeepFamily


class WideDeep(DeepFamily):
    """The sum of a linear model and dense layers (Cheng et al. 2016, arXiv:1606.07792)."""

    name = "wide_deep"
    description = "a table's linear model plus dense layers on embedded categories"
    examples = ("wide_deep_64_32",)
    is_wide = True


WIDE_DEEP = WideDeep()
