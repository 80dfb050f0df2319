"""Pictures of one class each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import SettingError
from stagecraft.schemas import features as names
from stagecraft.trainer_module import hub
from stagecraft.trainer_module.data.tasks import checks, metric, softmax
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Served, Spec, Task

if TYPE_CHECKING:
    from stagecraft.trainer_module.data.batch import Batch, Nest
    from stagecraft.trainer_module.settings import TrainSettings


class ImageClassification(Task):
    """Softmax cross entropy over the classes of the schema."""

    name = "image_classification"
    description = "pictures of one class each"
    monitor = "accuracy"
    noun = "images"
    mixes = True
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

    def __init__(
        self,
        class_weights: checks.ClassWeights | None = None,
        preset: str | None = None,
        download: bool = False,
    ):
        """Takes weights of the classes, and a preset.

        Args:
            class_weights: factors of the training's loss, for each class in the schema's order;
                or by name of the class, 1 for other classes.
            preset: folder of a preset of KerasHub, whose image converter resizes and scales the
                pictures, instead of the mean and variance of the split; with ``download``, its
                name.
            download: whether KerasHub may download the preset.

        Raises:
            SettingError: a factor is no number of 0 or more.
        """
        self.class_weights = checks.class_weights(class_weights)
        self.preset, self.preset_download = preset, download

    @property
    def files(self) -> Sequence[str]:
        """The file of the image converter."""
        if self.preset is None:
            return ()
        return hub.converter_files("task.args.preset", self.preset, self.preset_download)

    def resolved_args(self, arguments: Mapping[str, Any], schema_path: str) -> Mapping[str, Any]:
        """``class_weights`` as a list."""
        from stagecraft.trainer_module.data import schema_reader

        given = self.class_weights
        if given is None:
            return arguments
        known = schema_reader.class_names(schema_path)
        if isinstance(given, Mapping):
            for name in given:
                if name not in known:
                    problem = f"name {name!r}, which is no class of {schema_path}"
                    raise _refusal(given, problem, f"some of {', '.join(known)}")
            given = [given.get(name, 1.0) for name in known]
        elif len(given) != len(known):
            raise _refusal(given, f"do not fit {schema_path}", f"{len(known)} weights")
        return {**arguments, "class_weights": list(given)}

    def training_weights(self, targets: Nest, dtype: Any) -> Any:
        """The weight of the label's class."""
        import tensorflow as tf

        if self.class_weights is None:
            return None
        assert not isinstance(self.class_weights, Mapping), "resolved_args gives a list"
        return tf.gather(tf.constant(self.class_weights, dtype), targets)

    def model_arguments(self, schema_path: str) -> ModelArguments:
        """``input_shape``: height, width, channels; ``num_classes``."""
        from stagecraft.trainer_module.data import schema_reader

        self.resolved_args({}, schema_path)  # refuses class weights that do not fit
        shape = schema_reader.picture(schema_path).shape
        if self.preset is not None:
            converter = hub.image_converter(self.preset, self.preset_download)
            shape = (*(converter.image_size or shape[:2]), shape[2])
        return {
            "input_shape": shape,
            "num_classes": len(schema_reader.class_names(schema_path)),
        }

    def input_specs(self, arguments: ModelArguments) -> Nest:
        """The picture."""
        return Spec(arguments["input_shape"])

    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Refuses all but logits ``[batch, num_classes]``."""
        softmax.check_logits(name, outputs, (arguments["num_classes"],), "class")

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logits``, ``probabilities``, ``class_id`` and ``class_name``."""
        from stagecraft.trainer_module.data import schema_reader

        return softmax.named_outputs(outputs, schema_reader.class_names(schema_path))

    def preprocessing_config(self, schema_path: str) -> Mapping[str, Any]:
        """How to decode the picture."""
        from stagecraft.trainer_module.data import schema_reader

        config = schema_reader.picture(schema_path).config()
        if self.preset is None:
            return config
        return {**config, "preset": self.preset, "download": self.preset_download}

    def plain_signatures(self, served: Served) -> Mapping[str, tuple[Callable[..., Any], Any]]:
        """``serving_images``, of decoded pictures; ``serving_files``, if the pictures are files."""
        import tensorflow as tf

        from stagecraft.trainer_module.data import schema_reader

        picture = schema_reader.picture(served.schema_path)

        def serving_images(images: Any) -> Any:
            shape = [-1, *served.raw_spec[names.IMAGE].shape]
            encode = _to_png if picture.encoded else _to_bytes
            return served.predict({names.IMAGE: tf.reshape(encode(images), shape)})

        size = picture.shape[:2] if picture.fit is None else (None, None)
        dtype = tf.uint16 if picture.bits == 16 else tf.uint8
        spec = tf.TensorSpec([None, *size, picture.shape[2]], dtype, name="images")
        return {"serving_images": (serving_images, spec), **files_signature(served)}

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
            augmentations=train.augment,
        )
        return batch._replace(inputs=images)

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """Softmax cross entropy in nats, with ``train.label_smoothing``."""
        return softmax.cross_entropy(outputs, targets, dtype, train)

    def input_text(self, schema_path: str) -> str:
        """The picture's shape."""
        from stagecraft.trainer_module.data import schema_reader

        picture = schema_reader.picture(schema_path)
        if picture.fit is not None:
            return "JPEG, PNG, BMP or GIF files of any size, or tf.Examples of them"
        return f"uint{picture.bits} images {list(picture.shape)}, or tf.Examples of them"

    def output_text(self, class_names: Sequence[str]) -> str:
        """The classes."""
        return f"one of {len(class_names)} classes: {', '.join(class_names)}"

    def metrics(self) -> Sequence[metric.Metric]:
        """The share of the examples whose largest logit is their label's."""
        return (metric.Mean("accuracy", softmax.is_correct),)


def files_signature(served: Served) -> Mapping[str, tuple[Callable[..., Any], Any]]:
    """``serving_files``, of files: string ``[batch]``; none if the raw pictures are no files."""
    import tensorflow as tf

    from stagecraft.trainer_module.data import schema_reader

    if not schema_reader.picture(served.schema_path).encoded:
        return {}

    def serving_files(files: Any) -> Any:
        shape = [-1, *served.raw_spec[names.IMAGE].shape]
        return served.predict({names.IMAGE: tf.reshape(files, shape)})

    return {"serving_files": (serving_files, tf.TensorSpec([None], tf.string, name="files"))}


def _refusal(given: Any, problem: str, use: str) -> SettingError:
    return SettingError("task.args.class_weights", given, problem, use)


def _to_bytes(images: Any) -> Any:
    """Converts uint8 ``[batch, …]`` to string ``[batch]``, the transform's raw feature."""
    import tensorflow as tf

    characters = tf.constant([bytes([value]) for value in range(256)])
    flat = tf.reshape(images, [tf.shape(images)[0], math.prod(images.shape[1:])])
    return tf.strings.reduce_join(tf.gather(characters, tf.cast(flat, tf.int32)), axis=-1)


def _to_png(images: Any) -> Any:
    """Encodes uint8 or uint16 ``[batch, height, width, channels]``: string ``[batch]``."""
    import tensorflow as tf

    return tf.map_fn(tf.io.encode_png, images, fn_output_signature=tf.TensorSpec([], tf.string))


IMAGE_CLASSIFICATION = ImageClassification()
