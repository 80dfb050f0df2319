"""Dense layers on a table."""

from __future__ import annotations

from stagecraft.trainer_module.models.table_layers import DeepFamily


class Dnn(DeepFamily):
    """Dense layers on the numbers and on embeddings of the categories, as in ``DNNRegressor``."""

    name = "dnn"
    description = "dense layers on a table's numbers and embedded categories"
    examples = ("dnn_64_32",)


DNN = Dnn()
