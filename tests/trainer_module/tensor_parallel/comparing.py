"""A model whose layers shards divide, against the same model as a whole, in float64."""

import contextlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.pipeline_parallel.stage import Stage
from stagecraft.trainer_module.tensor_parallel import group as groups
from stagecraft.trainer_module.tensor_parallel.group import ShardGroup
from stagecraft.trainer_module.tensor_parallel.model_shards import ModelShards
from stagecraft.trainer_module.tensor_parallel.split import Slice

EXAMPLES = 3

FLOAT64 = 1e-11
"""Sums of some thousand terms in another order: some units of 2 ** -53 of their largest."""


def ways(shards: ModelShards) -> dict[str, str]:
    """Path of each divided layer -> name of the way."""
    return {path: way.name for path, way in shards.ways().items()}


def compare(model: keras.Model, count: int, like: Any = None, **options: Any) -> ModelShards:
    """Asserts equal outputs, penalties, assigned values and gradients; returns the division.

    ``like``: inputs of the model; None: random ones.
    """
    dropout.key_layers(model, 7)
    draw = np.random.default_rng(3)
    for variable in model.variables:
        if "float" in variable.dtype:
            value = draw.standard_normal(variable.shape) / max(1, np.sqrt(variable.shape[0]))
            variable.assign(np.abs(value) if "variance" in variable.path else value)
    shards = ModelShards([model], count)
    if like is None:
        given = [_drawn(each, draw) for each in model.inputs]
        inputs = given[0] if len(given) == 1 else given
    else:
        inputs = tf.nest.map_structure(lambda each: tf.constant(each[:EXAMPLES]), like)
    for training in (True, False):
        expected = _computed(Stage(model, dtype=tf.float64, **options), inputs, training)
        found = _computed(
            Stage(model, dtype=tf.float64, shards=shards, **options), inputs, training
        )
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(
                found[name], value, rtol=0, atol=FLOAT64 * max(1, np.abs(value).max()), err_msg=name
            )
    return shards


def _drawn(tensor: Any, draw: np.random.Generator) -> tf.Tensor:
    shape = (EXAMPLES, *tensor.shape[1:])
    if "int" in tensor.dtype:
        return tf.constant(draw.integers(0, 9, shape), tensor.dtype)
    return tf.constant(draw.standard_normal(shape), tensor.dtype)


def _computed(stage: Stage, inputs: Any, training: bool) -> dict[str, np.ndarray]:
    def compute() -> dict[str, tf.Tensor]:
        values = [tf.convert_to_tensor(each.value) for each in stage.variables]
        weights = values[: len(stage.trainable)]
        group = ShardGroup([contextlib.nullcontext] * stage.count, stage.jit)
        with groups.active(group if stage.shards else None), tf.GradientTape() as tape:
            tape.watch(weights)
            if training:
                step, rows = tf.constant(5, tf.int64), tf.range(EXAMPLES, dtype=tf.int64)
                outputs, changed, penalty = stage(values, inputs, step, rows)
            else:
                outputs, changed, penalty = stage.infer(values, inputs), {}, tf.zeros([])
            flat = tf.nest.flatten(outputs)
            target = tf.add_n([tf.reduce_sum(tf.sin(tf.cast(y, tf.float64))) for y in flat])
            target += tf.cast(penalty, tf.float64)
        gradients = tape.gradient(target, weights, unconnected_gradients="zero")
        result = {f"output {n}": y for n, y in enumerate(flat)} | {"penalty": penalty}
        result |= _joined(stage.trainable, gradients, "gradient")
        places = sorted(changed)
        entries = [stage.variables[place] for place in places]
        return result | _joined(entries, [changed[place] for place in places], "assigned")

    return {k: v.numpy() for k, v in tf.function(compute, autograph=False)().items()}


def _joined(entries: list[Any], values: list[Any], prefix: str) -> dict[str, tf.Tensor]:
    slices: dict[str, list[Any]] = {}
    axes: dict[str, int] = {}
    for entry, value in zip(entries, values, strict=True):
        name = f"{prefix} {entry.path}"
        slices.setdefault(name, []).append(tf.convert_to_tensor(value))
        axes[name] = entry.split.axis if isinstance(entry, Slice) else 0
    return {
        name: tf.concat(parts, axes[name]) if len(parts) > 1 else parts[0]
        for name, parts in slices.items()
    }
