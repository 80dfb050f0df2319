"""Test-time augmentation: the mean of the logits of several views of a picture.

Jordan 2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU", section 3.5: multi-crop evaluation.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.data.tasks.task import Spec, Task

Call = Callable[[tf.Tensor], tf.Tensor]
"""Pictures ``[n, height, width, channels]`` to logits ``[n, classes]``."""


def verify(kind: str, task: Task, specs: Nest, outputs: Nest) -> None:
    """Checks before a training that :func:`averaged` works in its export.

    Args:
        specs: of the inputs, as ``task.input_specs`` returns them.
        outputs: of the model.

    Raises:
        SettingError: the model has other inputs than one picture, or several outputs.
    """

    def refuse(problem: str, use: str = "none") -> SettingError:
        use = f"train.test_time_augment: {use}"
        return SettingError("train.test_time_augment", kind, problem, use)

    if not isinstance(specs, Spec) or len(specs.shape) != 3:
        shapes = ", ".join(str(list(spec.shape)) for spec in tf.nest.flatten(specs))
        raise refuse(
            "needs one picture [height, width, channels] as the model's input, but the task "
            f"{task.name} has {shapes}"
        )
    if kind == "flip_translate" and None in specs.shape[:2]:
        size = list(specs.shape)
        raise refuse(f"needs pictures of one size, but the task {task.name} has {size}", "flip")
    if not tf.is_tensor(outputs):
        count = len(tf.nest.flatten(outputs))
        raise refuse(f"averages one tensor, but the model's output has {count} of them")


def averaged(call: Call, kind: str | None) -> Call:
    """A function like ``call``, with the means of ``train.test_time_augment``; None: ``call``.

    ``flip`` is the mean of a picture and its mirror image. ``flip_translate`` is half that, half
    the mean of both views of the picture moved by a pixel up and left, and down and right, with
    reflected borders: six views. The model computes all views as one batch. Means are float32, or
    float64 if the logits are.
    """
    if kind is None:
        return call

    def mean(images: tf.Tensor) -> tf.Tensor:
        moved = [images]
        if kind == "flip_translate":
            moved += [_moved(images, -1), _moved(images, 1)]
        views = [view for each in moved for view in (each, each[:, :, ::-1])]
        logits = call(tf.concat(views, axis=0))
        logits = tf.cast(logits, tf.float64 if logits.dtype == tf.float64 else tf.float32)
        first, *others = (
            (one + two) / 2 for one, two in _pairs(tf.split(logits, len(views), axis=0))
        )
        return (first + tf.add_n(others) / len(others)) / 2 if others else first

    return mean


def _pairs(parts: list[tf.Tensor]) -> list[tuple[tf.Tensor, tf.Tensor]]:
    return list(zip(parts[::2], parts[1::2], strict=True))


def _moved(images: tf.Tensor, shift: int) -> tf.Tensor:
    """The picture moved by a pixel in both directions; a side of 1 stays."""
    rows, columns = (_positions(side, shift) for side in images.shape[1:3])
    return tf.gather(tf.gather(images, rows, axis=1), columns, axis=2)


def _positions(side: int, shift: int) -> list[int]:
    """The pixels that are seen: -1 is 1, and ``side`` is ``side - 2``."""
    last = side - 1
    return [last - abs(last - abs(place - shift)) for place in range(side)] if last else [0]
