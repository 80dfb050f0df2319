"""Writes the SavedModel for evaluation and serving.

The SavedModel contains the transform and the model, names no device, and loads in plain TensorFlow
without this project, TFX or Keras. Its signatures:

    serving_default      examples: string [batch], serialized tf.Example
    serving_images       images: uint8 [batch, height, width, channels]
        both give        logits         float32 [batch, classes]
                         probabilities  float32 [batch, classes]
                         class_id       int64   [batch]
                         class_name     string  [batch]
    transform_features   examples: string [batch] -> the transformed features, label included

The variables are ``model_variables``, a list; ``assets.extra/variable_paths.json`` has their Keras
paths, in the same order.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from stagecraft.schemas import features
from stagecraft.trainer_module.checkpointing.atomic_folder import atomic_folder
from stagecraft.trainer_module.models.initial_weights.source import VARIABLE_PATHS

Tensors = Mapping[str, tf.Tensor]


def export(
    folder: str | os.PathLike[str],
    model: keras.Model,
    weights: Mapping[str, np.ndarray],
    transform: tft.TFTransformOutput,
    class_names: Sequence[str],
) -> None:
    """Writes the SavedModel to ``folder``, whole or not at all.

    Args:
        folder: replaced if it exists.
        model: a copy of the model, built outside of any strategy and device scope, so that the
            SavedModel names no device; its weights are overwritten.
        weights: variable path -> value, as ``Engine.weights`` returns them.

    Raises:
        UserError: the disk is full, or ``folder`` is not writable.
    """
    for variable in model.variables:
        variable.assign(weights[variable.path])
    # The loader, not TFT's layer: saving that tf_keras model would take seconds.
    loader = _Loader(transform.transform_savedmodel_dir)
    module = tf.Module()
    # All that the signatures use must be reachable from the module.
    module.model_variables = [variable.value for variable in model.variables]
    module.transform = vars(loader)
    signatures = _signatures(
        model, loader.apply_transform_model, transform.raw_feature_spec(), class_names
    )
    with atomic_folder(folder) as aside:
        try:
            tf.saved_model.save(module, str(aside), signatures=signatures)
        except AssertionError:  # a table, or a variable that only the Keras layer tracks
            module.model = model  # stores all weights a second time
            tf.saved_model.save(module, str(aside), signatures=signatures)
        paths = pathlib.Path(aside, VARIABLE_PATHS)
        paths.parent.mkdir()
        paths.write_text(json.dumps([variable.path for variable in model.variables], indent=1))


class _Loader(SavedModelLoader):
    """TFT's loader, with the same graph in each process.

    TFT adds the features that a request lacks in the order of a set, which differs between
    processes. The Pusher would take two exports of one model for two models.
    """

    def _get_unfed_input_keys(self, input_tensor_keys: Iterable[str]) -> list[str]:
        return sorted(super()._get_unfed_input_keys(input_tensor_keys))


def _signatures(
    model: keras.Model,
    transform: Callable[[Tensors], Tensors],
    raw_spec: Mapping[str, tf.io.FixedLenFeature],
    class_names: Sequence[str],
) -> dict[str, tf.types.experimental.ConcreteFunction]:
    # Functions, not methods: saved_model.save refuses a method with an input signature.
    def classify(raw: Tensors) -> dict[str, tf.Tensor]:
        logits = tf.cast(model(transform(raw)[features.IMAGE], training=False), tf.float32)
        class_id = tf.argmax(logits, axis=-1)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class_id": class_id,
            "class_name": tf.gather(tf.constant(list(class_names)), class_id),
        }

    def serving_default(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        # The image alone: a request has no label.
        image_spec = {features.IMAGE: raw_spec[features.IMAGE]}
        return classify(tf.io.parse_example(examples, image_spec))

    def serving_images(images: tf.Tensor) -> dict[str, tf.Tensor]:
        shape = [-1, *raw_spec[features.IMAGE].shape]
        return classify({features.IMAGE: tf.reshape(_to_bytes(images), shape)})

    def transform_features(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(transform(tf.io.parse_example(examples, raw_spec)))

    examples = tf.TensorSpec([None], tf.string, name="examples")
    images = tf.TensorSpec([None, *features.IMAGE_SHAPE], tf.uint8, name="images")
    return {
        function.__name__: tf.function(function, autograph=False).get_concrete_function(spec)
        for function, spec in (
            (serving_default, examples),
            (serving_images, images),
            (transform_features, examples),
        )
    }


def _to_bytes(images: tf.Tensor) -> tf.Tensor:
    """Converts uint8 ``[batch, …]`` to string ``[batch]``, the transform's raw feature."""
    characters = tf.constant([bytes([value]) for value in range(256)])
    flat = tf.reshape(images, [tf.shape(images)[0], features.IMAGE_BYTES])
    return tf.strings.reduce_join(tf.gather(characters, tf.cast(flat, tf.int32)), axis=-1)
