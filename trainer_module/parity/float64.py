"""Runs a whole model in float64, even layers with another dtype."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.parity.rounding_depth import forward_ops

_DTYPES = ("compute_dtype", "variable_dtype")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@contextlib.contextmanager
def forced(precision: str) -> Iterator[None]:
    """Makes every layer compute in float64, if that is the value of ``parallel.precision``.

    In this block, a layer's ``dtype="float32"`` or ``dtype="mixed_bfloat16"`` means float64. So do
    dtype policies that are set later, and those of a ``keras.dtype_policies.DTypePolicyMap``. A
    quantized layer keeps its dtype. Build, call and trace a model in the same block.
    """
    own = {name: vars(keras.DTypePolicy)[name] for name in _DTYPES}
    try:
        if precision == "float64":
            for name, value in own.items():
                setattr(keras.DTypePolicy, name, _raised(value))
        yield
    finally:
        for name, value in own.items():
            setattr(keras.DTypePolicy, name, value)


def _raised(dtype: Any) -> property:
    """The property of a dtype policy that returns float64 for any float dtype."""

    def read(policy: keras.DTypePolicy) -> Any:
        value = dtype.fget(policy)
        return "float64" if policy.quantization_mode is None and value in _FLOATS else value

    return property(read)


def exceptions(model: keras.Model) -> list[str]:
    """Finds the places where a model computes in less precision, also in :func:`forced`.

    These are paths of variables with their own dtype, and names of layers with casts in their code,
    such as ``tf.cast(scores, "float32")``. Dtype policies do not affect them.
    """
    low = [v.path for v in model.variables if v.dtype in _FLOATS and v.dtype != "float64"]
    # The data are float32, and so may be a functional model's inputs: no precision is lost.
    nodes = forward_ops(model, None if getattr(model, "inputs", None) else "float64")
    # Private, but the only list of all layers.
    layers = {layer.name for layer in model._flatten_layers()}
    casts = [_layer(node.name, layers) for node in nodes if node.op == "Cast" and _loses(node)]
    return list(dict.fromkeys([*low, *casts]))


def _loses(cast: Any) -> bool:
    source, target = (tf.as_dtype(cast.attr[name].type) for name in ("SrcT", "DstT"))
    return bool(source == tf.float64 and target.is_floating and target != tf.float64)


def _layer(op: str, layers: set[str]) -> str:
    """``model/layer_1/Cast`` -> ``layer``; a cast outside of all layers keeps its name."""
    for scope in reversed(op.split("/")[:-1]):
        for name in (scope, scope.rpartition("_")[0]):
            if name in layers:
                return name
    return op
