"""The Keras models of canned Estimators. Imports Keras inside functions only.

The layers' names follow from the names of Estimator's variables, so that a checkpoint fits:
``linear_COLUMN``, ``linear_bias``, ``dnn_COLUMN``, ``dnn_hiddenlayer_0``, ``dnn_logits``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from stagecraft.estimator.feature_columns import Input
from stagecraft.trainer_module.models import table_layers


@dataclasses.dataclass(frozen=True)
class CannedModel:
    """Builds a linear model, dense layers, or the sum of both; a value of ``train.model``."""

    linear: Sequence[Input] = ()
    deep: Sequence[Input] = ()
    hidden_units: Sequence[int] = ()
    activation: Any = "relu"
    dropout: float | None = None
    batch_norm: bool = False

    def __call__(self, numeric: Sequence[str], categorical: Mapping[str, int], outputs: int) -> Any:
        """A new ``keras.Model`` of a dictionary of inputs ``[batch, 1]``: ``[batch, outputs]``."""
        import keras

        given = table_layers.inputs(numeric, categorical)
        parts = []
        if self.linear:
            parts.append(self._linear(given, outputs))
        if self.deep:
            parts.append(self._deep(given, outputs))
        result = parts[0]
        if len(parts) > 1:
            result = keras.layers.Add(name=table_layers.free("logits", given))(parts)
        return keras.Model(given, result, name="estimator")

    def _linear(self, given: Mapping[str, Any], outputs: int) -> Any:
        from keras import layers

        from stagecraft.estimator.layers import Bias, Rows

        terms = []
        for each in self.linear:
            name = table_layers.free(f"linear_{each.estimator_name}", given)
            if each.ids is None:
                layer: Any = layers.Dense(
                    outputs, use_bias=False, kernel_initializer="zeros", name=name
                )
            else:
                layer = Rows(each.ids, outputs, name=name)
            terms.append(layer(given[each.name]))
        total = terms[0]
        if len(terms) > 1:
            total = layers.Add(name=table_layers.free("linear", given))(terms)
        return Bias(name=table_layers.free("linear_bias", given))(total)

    def _deep(self, given: Mapping[str, Any], outputs: int) -> Any:
        import keras
        from keras import layers

        from stagecraft.estimator.layers import OneHot, Rows

        tables: dict[str, Any] = {}
        parts = []
        for each in self.deep:
            table = each.shared or each.estimator_name
            name = table_layers.free(f"dnn_{table}", given)
            if each.ids is None:
                parts.append(given[each.name])
                continue
            if each.dimension is None:
                layer: Any = OneHot(each.ids, name=name)
            elif table in tables:
                layer = tables[table]
            else:
                deviation = 1 / math.sqrt(each.dimension)
                initializer = keras.initializers.TruncatedNormal(stddev=deviation)
                layer = tables[table] = Rows(each.ids, each.dimension, initializer, name=name)
            parts.append(layer(given[each.name]))
        hidden = parts[0]
        if len(parts) > 1:
            hidden = layers.Concatenate(name=table_layers.free("dnn_input_layer", given))(parts)
        for number, units in enumerate(self.hidden_units):
            name = table_layers.free(f"dnn_hiddenlayer_{number}", given)
            hidden = layers.Dense(units, activation=self.activation, name=name)(hidden)
            if self.dropout:
                name = table_layers.free(f"dnn_dropout_{number}", given)
                hidden = layers.Dropout(self.dropout, name=name)(hidden)
            if self.batch_norm:
                name = table_layers.free(f"dnn_batchnorm_{number}", given)
                hidden = layers.BatchNormalization(momentum=0.999, name=name)(hidden)
        return layers.Dense(outputs, name=table_layers.free("dnn_logits", given))(hidden)
