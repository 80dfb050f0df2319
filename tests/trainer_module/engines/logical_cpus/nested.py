"""Tasks and models with several inputs, several outputs, long skips and tied weights."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.metric import Mean, Metric
from stagecraft.trainer_module.data.tasks.task import Spec, Task

layers = keras.layers


class _Task(Task):
    """What no engine asks for."""

    monitor = "loss"
    sample_arguments: Mapping[str, Any] = {}
    features = schema_features = served_features = ()
    description = "for tests"

    def model_arguments(self, schema_path: str) -> Mapping[str, Any]:
        return {}

    def check_outputs(self, name: str, outputs: Any, arguments: Any) -> None:
        pass

    def outputs(self, outputs: Any, schema_path: str) -> Mapping[str, Any]:
        return {"outputs": outputs}

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        return Batch(features["inputs"], features.get("targets"), weights)

    def metrics(self) -> Sequence[Metric]:
        return ()

    @abc.abstractmethod
    def examples(self, count: int) -> Batch:
        """Random examples."""


def _cross_entropy(labels: Any, logits: Any) -> Any:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))


class Pixels(_Task):
    """A class for each pixel."""

    name = "pixels"

    def input_specs(self, arguments: Any) -> Any:
        return Spec((8, 8, 2))

    def losses(self, outputs: Any, targets: Any, dtype: Any, train: Any) -> Any:
        return _cross_entropy(targets, outputs)

    def examples(self, count: int) -> Batch:
        draw = np.random.RandomState(count)
        pictures = draw.randn(count, 8, 8, 2).astype(np.float32)
        return Batch(pictures, (pictures[..., 0] > 0).astype(np.int64), np.ones(count, np.float32))


class Towers(_Task):
    """A class and a number, from words and numbers."""

    name = "towers"

    def input_specs(self, arguments: Any) -> Any:
        return {"words": Spec((5,), "int32"), "numbers": Spec((4,))}

    def losses(self, outputs: Any, targets: Any, dtype: Any, train: Any) -> Any:
        number = tf.square(outputs["number"][:, 0] - tf.cast(targets["number"], dtype))
        return _cross_entropy(targets["class"], outputs["class"]) + number

    def metrics(self) -> Sequence[Metric]:
        def distance(outputs: Any, targets: Any) -> Any:
            return tf.abs(outputs["number"][:, 0] - tf.cast(targets["number"], tf.float64))

        return (Mean("distance", distance, higher_is_better=False),)

    def examples(self, count: int) -> Batch:
        draw = np.random.RandomState(count)
        words = draw.randint(0, 7, (count, 5)).astype(np.int32)
        numbers = draw.randn(count, 4).astype(np.float32)
        targets = {"class": words[:, 0] % 3, "number": numbers.sum(1) / 4}
        return Batch({"words": words, "numbers": numbers}, targets, np.ones(count, np.float32))


class Tokens(_Task):
    """The next token, at each place of a text."""

    name = "tokens"

    def input_specs(self, arguments: Any) -> Any:
        return Spec((6,), "int32")

    def losses(self, outputs: Any, targets: Any, dtype: Any, train: Any) -> Any:
        return _cross_entropy(targets, outputs)

    def examples(self, count: int) -> Batch:
        texts = np.random.RandomState(count).randint(0, 11, (count, 7)).astype(np.int32)
        return Batch(texts[:, :-1], texts[:, 1:], np.ones(count, np.float32))


PIXELS, TOWERS, TOKENS = Pixels(), Towers(), Tokens()


def u_net() -> keras.Model:
    """Two long skips; in the middle, three tensors are alive."""

    def convolved(hidden: Any, filters: int, name: str) -> Any:
        hidden = layers.Conv2D(filters, 3, padding="same", name=name)(hidden)
        return layers.Activation("tanh", name=f"{name}_tanh")(hidden)

    pictures = hidden = keras.Input((8, 8, 2))
    skips = []
    for level, filters in enumerate((3, 4)):
        hidden = convolved(hidden, filters, f"down{level}")
        skips.append(hidden)
        hidden = layers.AveragePooling2D(2, name=f"pool{level}")(hidden)
    hidden = convolved(hidden, 5, "bottom")
    hidden = layers.Dropout(0.3, name="drop")(hidden)
    for level, filters in ((1, 4), (0, 3)):
        hidden = layers.UpSampling2D(2, name=f"grow{level}")(hidden)
        hidden = layers.Concatenate(name=f"join{level}")([hidden, skips.pop()])
        hidden = convolved(hidden, filters, f"up{level}")
    return keras.Model(pictures, layers.Conv2D(2, 1, name="logits")(hidden))


def towers() -> keras.Model:
    """Two inputs, one of integers, and two outputs, one of them early."""
    words = keras.Input((5,), dtype="int32", name="words")
    numbers = keras.Input((4,), name="numbers")
    left = layers.Embedding(7, 3, name="embedding")(words)
    left = layers.Dense(4, activation="tanh", name="left")(layers.Flatten(name="flat")(left))
    right = layers.Dense(4, activation="tanh", name="right")(numbers)
    right = layers.Dense(4, activation="tanh", name="right2")(right)
    joined = layers.Concatenate(name="join")([left, right])
    number = layers.Dense(1, name="number")(joined)
    hidden = layers.Dense(4, activation="tanh", name="dense")(joined)
    return keras.Model(
        {"words": words, "numbers": numbers},
        {"number": number, "class": layers.Dense(3, name="class")(hidden)},
    )


class Whole(keras.Model):
    """Two towers without a visible graph."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = layers.Embedding(7, 3)
        self.flat = layers.Flatten()
        self.number, self.classes = layers.Dense(1), layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        hidden = self.flat(self.embedding(inputs["words"]))
        hidden = keras.ops.concatenate([hidden, inputs["numbers"]], axis=1)
        return {"number": self.number(hidden), "class": self.classes(hidden)}


class Reversible(layers.Embedding):
    """Tokens to vectors, and vectors to logits."""

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        if reverse:
            return keras.ops.matmul(inputs, keras.ops.transpose(self.embeddings))
        return super().call(inputs)

    def compute_output_spec(self, inputs: Any, reverse: bool = False) -> Any:
        size = self.input_dim if reverse else self.output_dim
        shape = inputs.shape[:-1] if reverse else inputs.shape
        return keras.KerasTensor((*shape, size), self.compute_dtype)


def language_model() -> keras.Model:
    """The first and the last layer have one weight, with a regularizer."""
    embedding = Reversible(11, 4, embeddings_regularizer="l2", name="embedding")
    tokens = keras.Input((6,), dtype="int32")
    hidden = layers.Identity(name="begin")(embedding(tokens))
    for number in range(3):
        inner = layers.LayerNormalization(name=f"norm{number}")(hidden)
        inner = layers.Conv1D(4, 3, padding="causal", activation="tanh", name=f"mix{number}")(inner)
        hidden = layers.Add(name=f"add{number}")([hidden, inner])
    return keras.Model(tokens, embedding(hidden, reverse=True))


def causal_lm() -> keras.Model:
    """A backbone of models, and a head that uses its embedding again."""
    embedding = Reversible(11, 4, name="embedding")
    tokens = keras.Input((6,), dtype="int32")
    hidden = layers.Identity(name="begin")(embedding(tokens))
    for number in range(3):
        block = keras.Sequential(name=f"block{number}")
        block.add(keras.Input((6, 4)))
        block.add(layers.Dense(8, activation="tanh", name=f"wide{number}"))
        block.add(layers.Dropout(0.2, name=f"drop{number}"))
        block.add(layers.LayerNormalization(name=f"norm{number}"))
        block.add(layers.Dense(4, name=f"narrow{number}"))
        hidden = layers.Add(name=f"add{number}")([hidden, block(hidden)])
    backbone = keras.Model(tokens, hidden, name="backbone")
    given = keras.Input((6,), dtype="int32")
    return keras.Model(given, embedding(backbone(given), reverse=True))
