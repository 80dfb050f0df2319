"""The features and the model of TFX's taxi template, as a task of Stagecraft."""

from models import features  # of the template
from models.keras_model import constants

from stagecraft.trainer_module.data.tasks.kinds.binary_classification import BinaryClassification
from stagecraft.trainer_module.data.tasks.tables.columns import (
    Bucketized,
    Identity,
    Numeric,
    Vocabulary,
)

BUCKETS = zip(features.BUCKET_FEATURE_KEYS, features.BUCKET_FEATURE_BUCKET_COUNT, strict=True)
IDS = zip(features.CATEGORICAL_FEATURE_KEYS, features.CATEGORICAL_FEATURE_MAX_VALUES, strict=True)

TAXI = BinaryClassification(
    features={
        **{name: Numeric() for name in features.DENSE_FLOAT_FEATURE_KEYS},
        **{name: Bucketized(count) for name, count in BUCKETS},
        **{name: Identity(size) for name, size in IDS},
        **{
            name: Vocabulary(features.VOCAB_SIZE, oov=features.OOV_SIZE)
            for name in features.VOCAB_FEATURE_KEYS
        },
    },
    label="big_tipper",
)


def model(numeric, categorical, outputs):
    """The template's layers, except for its sigmoid and its normalization by 0 and 1."""
    import keras
    from keras import layers

    inputs = {name: keras.Input((1,), name=name) for name in numeric}
    inputs |= {name: keras.Input((1,), name=name, dtype="int64") for name in categorical}
    deep = layers.Concatenate()([inputs[name] for name in numeric])
    for units in constants.HIDDEN_UNITS:
        deep = layers.Dense(units)(deep)
    wide = [layers.CategoryEncoding(ids)(inputs[name]) for name, ids in categorical.items()]
    return keras.Model(inputs, layers.Dense(outputs)(layers.Concatenate()([deep, *wide])))
