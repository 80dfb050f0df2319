"""Segmentation: a class for each pixel of a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft.schemas import features as names
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.tasks import checks, metric, softmax
from stagecraft.trainer_module.data.tasks.constant import Frequencies
from stagecraft.trainer_module.data.tasks.kinds.image_classification import files_signature
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Served, Spec, Task

if TYPE_CHECKING:
    from stagecraft.trainer_module.data.batch import Batch, Nest
    from stagecraft.trainer_module.settings import TrainSettings


class Segmentation(Task):
    """Softmax cross entropy of each pixel; the schema's ``label_names`` are the classes."""

    name = "segmentation"
    description = "a class for each pixel of a picture"
    monitor = "mean_iou"
    preprocessing_fn = "stagecraft.trainer_module.data.tasks.preprocessing.masks.preprocessing_fn"
    image_features = (names.IMAGE, names.MASK)
    schema_file = names.schema_file("sample_masks")
    example_gen = "stagecraft.components.example_gen.kinds.masks.MaskExampleGen"
    schema_features = features = (names.IMAGE, names.MASK, names.ID)
    served_features = (names.IMAGE,)
    sample_arguments: ModelArguments = MappingProxyType(
        {"input_shape": names.IMAGE_SHAPE, "num_classes": 2}
    )

    def __init__(self, num_classes: int = 2):
        """Takes the number of classes.

        Args:
            num_classes: of a pixel; as many as the schema's ``label_names``.

        Raises:
            SettingError: there are not two or more.
        """
        checks.whole("task.args.num_classes", num_classes, 2)
        self._classes = num_classes
        self.example_gen_args = {"num_classes": num_classes}

    def model_arguments(self, schema_path: str) -> ModelArguments:
        """``input_shape``: height, width, channels; ``num_classes``."""
        from stagecraft.trainer_module.data import schema_reader

        schema_reader.check_names(schema_path, self._classes, "task.args.num_classes")
        shape = schema_reader.picture(schema_path).shape
        return {"input_shape": shape, "num_classes": self._classes}

    def preprocessing_config(self, schema_path: str) -> Mapping[str, Any]:
        """Configuration of the picture, and ``num_classes``."""
        from stagecraft.trainer_module.data import schema_reader

        return {**schema_reader.picture(schema_path).config(), "num_classes": self._classes}

    def input_specs(self, arguments: ModelArguments) -> Nest:
        """The picture."""
        return Spec(arguments["input_shape"])

    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Refuses all but logits ``[batch, height, width, num_classes]``."""
        shape = (*arguments["input_shape"][:2], arguments["num_classes"])
        softmax.check_logits(name, outputs, shape, "pixel and class")

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``probabilities`` ``[batch, height, width, classes]`` and ``mask``, the likeliest."""
        import tensorflow as tf

        logits = tf.cast(outputs, tf.float32)
        return {"probabilities": tf.nn.softmax(logits), "mask": tf.argmax(logits, axis=-1)}

    def plain_signatures(self, served: Served) -> Mapping[str, tuple[Callable[..., Any], Any]]:
        """``serving_files``, if the pictures are files."""
        return files_signature(served)

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """Pictures and masks."""
        from stagecraft.trainer_module.data.batch import Batch

        return Batch(features[names.IMAGE], features.get(names.MASK), weights)

    def augment(self, batch: Batch, features: Mapping[str, Any], epoch: Any, train: Any) -> Batch:
        """Moves picture and mask together: class 0 fills what the picture leaves.

        An augmentation that does not move pixels leaves the mask as it is.
        """
        import tensorflow as tf

        from stagecraft.trainer_module.data.augment import augment

        def augmented(pictures: Any, applied: Sequence[str]) -> Any:
            return augment(
                pictures,
                features[names.ID],
                seed=train.seed,
                epoch=epoch,
                augmentations=applied,
            )

        # The same draws move the mask as its picture.
        moving = [each for each in train.augment if registries.AUGMENTATIONS.get(each).moves]
        mask = augmented(tf.cast(batch.targets, tf.float32)[..., tf.newaxis], moving)
        return batch._replace(
            inputs=augmented(batch.inputs, train.augment),
            targets=tf.cast(mask[..., 0], batch.targets.dtype),
        )

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """The mean over the pixels, in nats, with ``train.label_smoothing``."""
        return self.per_example(softmax.cross_entropy(outputs, targets, dtype, train), targets)

    def metrics(self) -> Sequence[metric.Metric]:
        """``accuracy``, the share of right pixels, and ``mean_iou``."""
        accuracy = metric.Mean("accuracy", softmax.is_correct)
        return (accuracy, metric.MeanIoU(self._classes))

    def constant(self) -> Frequencies:
        """The frequencies of the pixels' classes."""
        return Frequencies(self._classes, "the frequencies of the pixels' classes")


SEGMENTATION = Segmentation()
