"""A wide and deep model: a weight for each category, plus dense layers on embeddings."""

from collections.abc import Mapping, Sequence

import keras
from keras import layers

EMBEDDING = 8  # numbers for each category


def build(numeric: Sequence[str], categorical: Mapping[str, int], outputs: int) -> keras.Model:
    """Builds the model.

    Args:
        numeric: names of the inputs that are numbers, float32 ``[batch, 1]``.
        categorical: number of ids of each other input, int64 ``[batch, 1]``.
        outputs: the number of logits.
    """
    inputs = {name: keras.Input((1,), name=name) for name in numeric}
    inputs |= {name: keras.Input((1,), name=name, dtype="int64") for name in categorical}

    wide, deep = [], [inputs[name] for name in numeric]
    for name, ids in categorical.items():
        wide.append(layers.Flatten()(layers.Embedding(ids, outputs)(inputs[name])))
        deep.append(layers.Flatten()(layers.Embedding(ids, EMBEDDING)(inputs[name])))
    hidden = layers.Concatenate()(deep)
    for units in (64, 32):
        hidden = layers.Dense(units, activation="relu")(hidden)
    return keras.Model(inputs, layers.Add()([*wide, layers.Dense(outputs)(hidden)]))
