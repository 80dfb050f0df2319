"""Pictures of one class each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft.schemas import features as names
from stagecraft.trainer_module.data.tasks import metric, softmax
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Served, Spec, Task

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
            "input_shape": labels.picture(schema_path).shape,
            "num_classes": len(labels.class_names(schema_path)),
        }

    def input_specs(self, arguments: ModelArguments) -> Nest:
        """The picture."""
        return Spec(arguments["input_shape"])

    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Refuses all but logits ``[batch, num_classes]``."""
        softmax.check_logits(name, outputs, (arguments["num_classes"],), "class")

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

    def preprocessing_config(self, schema_path: str) -> Mapping[str, Any]:
        """``image_shape`` and ``image_encoded``."""
        from stagecraft.trainer_module.data import labels

        return labels.picture(schema_path).config()

    def plain_signatures(self, served: Served) -> Mapping[str, tuple[Callable[..., Any], Any]]:
        """``serving_images``, of uint8 pictures ``[batch, height, width, channels]``."""
        import tensorflow as tf

        from stagecraft.trainer_module.data import labels

        picture = labels.picture(served.schema_path)

        def serving_images(images: Any) -> Any:
            shape = [-1, *served.raw_spec[names.IMAGE].shape]
            encode = _to_png if picture.encoded else _to_bytes
            return served.predict({names.IMAGE: tf.reshape(encode(images), shape)})

        spec = tf.TensorSpec([None, *picture.shape], tf.uint8, name="images")
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
        """Softmax cross entropy in nats, with ``train.label_smoothing``."""
        return softmax.cross_entropy(outputs, targets, dtype, train)

    def input_text(self) -> str:
        """The picture's shape."""
        return f"uint8 images {list(names.IMAGE_SHAPE)}, or tf.Examples of them"

    def output_text(self, class_names: Sequence[str]) -> str:
        """The classes."""
        return f"one of {len(class_names)} classes: {', '.join(class_names)}"

    def metrics(self) -> Sequence[metric.Metric]:
        """The share of the examples whose largest logit is their label's."""
        return (metric.Mean("accuracy", softmax.is_correct),)


def _to_bytes(images: Any) -> Any:
    """Converts uint8 ``[batch, …]`` to string ``[batch]``, the transform's raw feature."""
    import tensorflow as tf

    characters = tf.constant([bytes([value]) for value in range(256)])
    flat = tf.reshape(images, [tf.shape(images)[0], math.prod(images.shape[1:])])
    return tf.strings.reduce_join(tf.gather(characters, tf.cast(flat, tf.int32)), axis=-1)


def _to_png(images: Any) -> Any:
    """Encodes uint8 ``[batch, height, width, channels]`` without loss: string ``[batch]``."""
    import tensorflow as tf

    return tf.map_fn(tf.io.encode_png, images, fn_output_signature=tf.TensorSpec([], tf.string))


PICTURES = Pictures()
