"""The model: replace it with yours."""

import keras
from keras import layers


def build(numeric, categorical, outputs):
    """Returns a model of columns ``[batch, 1]``: float32, and int64 ids for categories."""
    inputs = {name: keras.Input((1,), name=name) for name in numeric}
    inputs |= {name: keras.Input((1,), name=name, dtype="int64") for name in categorical}
    ids = [layers.CategoryEncoding(size)(inputs[name]) for name, size in categorical.items()]
    columns = layers.Concatenate()([*(inputs[name] for name in numeric), *ids])
    hidden = layers.Dense(64, activation="relu")(columns)
    return keras.Model(inputs, layers.Dense(outputs)(hidden))
