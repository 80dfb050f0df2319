"""Reads the operations of a model's TensorFlow graph, including those of its own code."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from stagecraft.schemas import features


def forward(model: keras.Model, dtype: str) -> list[Any]:
    """The operations of a training's forward pass, as ``NodeDef`` protocol buffers."""
    shape = model.inputs[0].shape[1:] if getattr(model, "inputs", None) else features.IMAGE_SHAPE
    inputs = tf.TensorSpec([2, *shape], dtype)
    function = tf.function(lambda inputs: model(inputs, training=True), autograph=False)
    graph = function.get_concrete_function(inputs).graph.as_graph_def()
    return [*graph.node, *(node for part in graph.library.function for node in part.node_def)]
