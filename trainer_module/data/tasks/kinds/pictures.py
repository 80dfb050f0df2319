"""Pictures of one class each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft.schemas import features as names
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.data.tasks import metric
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Spec, Task

if TYPE_CHECKING:
    from stagecraft.trainer_module.data.batch import Batch, Nest
    from stagecraft.trainer_module.settings import TrainSettings


class Pictures(Task):
    """Softmax cross entropy over the classes of the schema."""

    name = "pictures"
    description = "pictures of one class each"
    monitor = "accuracy"
    noun = "images"
    class_label = names.LABEL
    report_sections = ("quality", "mistakes", "augmentation")
    first_signature = "serving_images"
    preprocessing_fn = "stagecraft.trainer_module.preprocessing.preprocessing_fn"
    image_features = (names.IMAGE,)
    schema_features = names.ALL
    features = names.ALL
    served_features = (names.IMAGE,)
    sample_arguments: ModelArguments = MappingProxyType(
        {"input_shape": names.IMAGE_SHAPE, "num_classes": 10}
    )

    def model_arguments(self, schema_path: str) -> ModelArguments:
        """``input_shape``: height, width, channels; ``num_classes``."""
        from stagecraft.trainer_module.data import labels

        return {
            "input_shape": names.IMAGE_SHAPE,
            "num_classes": len(labels.class_names(schema_path)),
        }

    def input_specs(self, arguments: ModelArguments) -> Nest:
        """The picture."""
        return Spec(arguments["input_shape"])

    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Refuses all but logits ``[batch, num_classes]``."""
        import keras
        import numpy as np

        classes = arguments["num_classes"]
        shape = getattr(outputs, "shape", None)
        shown = type(outputs).__name__ if shape is None else tuple(shape)
        if shown != (3, classes):
            raise UserError(
                f"train.model: {name} returns {shown} for a batch of 3; expected "
                f"[batch, {classes}], one logit for each class"
            )
        values = np.asarray(keras.ops.convert_to_numpy(outputs), np.float32)
        # bfloat16 has 8 bits of fraction: each of the summands is off by at most 2 ** -9 of itself.
        if classes > 1 and values.min() >= 0 and np.allclose(values.sum(axis=1), 1, atol=4e-3):
            raise UserError(
                f"train.model: {name} returns probabilities, but the loss and the exported model "
                "apply the softmax; remove the softmax at the model's end to return logits"
            )

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logits``, ``probabilities``, ``class_id`` and ``class_name``."""
        import tensorflow as tf

        from stagecraft.trainer_module.data import labels

        logits = tf.cast(outputs, tf.float32)
        class_id = tf.argmax(logits, axis=-1)
        class_names = tf.constant(list(labels.class_names(schema_path)))
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class_id": class_id,
            "class_name": tf.gather(class_names, class_id),
        }

    def plain_signatures(
        self, predict: Callable[[Mapping[str, Any]], Any], raw_spec: Mapping[str, Any]
    ) -> Mapping[str, tuple[Callable[..., Any], Any]]:
        """``serving_images``, of uint8 pictures ``[batch, height, width, channels]``."""
        import tensorflow as tf

        def serving_images(images: Any) -> Any:
            shape = [-1, *raw_spec[names.IMAGE].shape]
            return predict({names.IMAGE: tf.reshape(_to_bytes(images), shape)})

        spec = tf.TensorSpec([None, *names.IMAGE_SHAPE], tf.uint8, name="images")
        return {"serving_images": (serving_images, spec)}

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """Pictures and labels."""
        from stagecraft.trainer_module.data.batch import Batch

        return Batch(features[names.IMAGE], features.get(names.LABEL), weights)

    def augment(self, batch: Batch, features: Mapping[str, Any], epoch: Any, train: Any) -> Batch:
        """Augments the pictures, each by its id and epoch."""
        from stagecraft.trainer_module.data.augment import augment

        images = augment(
            batch.inputs,
            features[names.ID],
            seed=train.seed,
            epoch=epoch,
            augmentations=train.augmentations,
        )
        return batch._replace(inputs=images)

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """Softmax cross entropy in nats, with ``train.label_smoothing``.

        With smoothing ``s``, the target is ``1 - s`` on the label plus ``s / classes`` on every
        class (Szegedy et al. 2016, section 7).
        """
        import tensorflow as tf

        logits = outputs if outputs.dtype == tf.float64 else tf.cast(outputs, dtype)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
        if train is not None and train.label_smoothing:
            uniform = tf.reduce_logsumexp(logits, axis=-1) - tf.reduce_mean(logits, axis=-1)
            losses = (1 - train.label_smoothing) * losses + train.label_smoothing * uniform
        return losses

    def input_text(self) -> str:
        """The picture's shape."""
        return f"uint8 images {list(names.IMAGE_SHAPE)}, or tf.Examples of them"

    def output_text(self, class_names: Sequence[str]) -> str:
        """The classes."""
        return f"one of {len(class_names)} classes: {', '.join(class_names)}"

    def metrics(self) -> Sequence[metric.Metric]:
        """The share of the examples whose largest logit is their label's."""
        return (metric.Mean("accuracy", _is_correct),)


def _is_correct(logits: Any, labels: Any) -> Any:
    import tensorflow as tf

    return tf.equal(tf.argmax(logits, axis=-1), labels)


def _to_bytes(images: Any) -> Any:
    """Converts uint8 ``[batch, …]`` to string ``[batch]``, the transform's raw feature."""
    import tensorflow as tf

    characters = tf.constant([bytes([value]) for value in range(256)])
    flat = tf.reshape(images, [tf.shape(images)[0], names.IMAGE_BYTES])
    return tf.strings.reduce_join(tf.gather(characters, tf.cast(flat, tf.int32)), axis=-1)


PICTURES = Pictures()
