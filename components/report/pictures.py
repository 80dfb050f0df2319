"""Pictures of the examples: found, augmented as in training, and encoded."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
from PIL import Image
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from stagecraft.components.report.facts import Augmented
from stagecraft.schemas import features
from stagecraft.trainer_module.data import example_files
from stagecraft.trainer_module.data.augment import augment

_BATCH = 2048

_EPOCHS = 5

Pixels = npt.NDArray[np.uint8]
"""``[height, width, channels]``."""


class Scan(NamedTuple):
    """What one pass over a split gives."""

    counts: list[int]
    """Examples per class."""

    first: dict[int, bytes]
    """The first serialized example of each class."""

    wanted: dict[int, Pixels]
    """Pictures by id."""


def scan(files: Sequence[str], classes: int, ids: Collection[int] = ()) -> Scan:
    """Reads a split once.

    Args:
        files: paths or patterns of TFRecords of raw examples.
        classes: how many.
        ids: whose pictures are wanted.

    Raises:
        UserError: there are no such files.
    """
    spec = {
        name: tf.io.FixedLenFeature([], tf.int64, default_value=-1)
        for name in (features.LABEL, features.ID)
    }
    counts = np.zeros(classes, np.int64)
    first: dict[int, bytes] = {}
    wanted: dict[int, Pixels] = {}
    for records in example_files.records(example_files.expand(files)).batch(_BATCH):
        parsed = tf.io.parse_example(records, spec)
        labels = parsed[features.LABEL].numpy()
        counts += np.bincount(labels[labels >= 0], minlength=classes)[:classes]
        for label, position in zip(*np.unique(labels, return_index=True), strict=True):
            first.setdefault(int(label), records[position].numpy())
        found = np.flatnonzero(np.isin(parsed[features.ID].numpy(), list(ids)))
        for position in found:
            wanted[int(parsed[features.ID][position])] = pixels(records[position].numpy())
    return Scan(counts.tolist(), dict(sorted(first.items())), wanted)


def pixels(record: bytes) -> Pixels:
    """The picture of a raw example."""
    raw = tf.train.Example.FromString(record).features.feature[features.IMAGE].bytes_list.value[0]
    return np.frombuffer(raw, np.uint8).reshape(features.IMAGE_SHAPE)


def augmented(
    records: Sequence[bytes],
    labels: Sequence[str],
    transform_graph: str,
    *,
    seed: int,
    augmentations: Sequence[str],
) -> list[Augmented]:
    """What the model sees of some examples in the first epochs of its training.

    Args:
        records: raw serialized examples, and
        labels: names of their classes.
        transform_graph: folder of Transform's output.
        seed: of the training.
        augmentations: names; none: nothing is returned.
    """
    if not augmentations:
        return []
    transform = tft.TFTransformOutput(transform_graph)
    raw = tf.io.parse_example(tf.constant(list(records)), transform.raw_feature_spec())
    loader = SavedModelLoader(transform.transform_savedmodel_dir)
    inputs = loader.apply_transform_model(raw)
    images = inputs[features.IMAGE]
    originals = np.stack([pixels(record) for record in records])
    variants = [
        _to_pixels(
            augment(
                images,
                inputs[features.ID],
                seed=seed,
                epoch=tf.fill([len(records)], tf.constant(epoch, tf.int64)),
                augmentations=augmentations,
            ).numpy(),
            images.numpy(),
            originals,
        )
        for epoch in range(_EPOCHS)
    ]
    return [
        Augmented(
            label=label, original=png(originals[i]), variants=[png(epoch[i]) for epoch in variants]
        )
        for i, label in enumerate(labels)
    ]


def _to_pixels(values: Any, transformed: Any, originals: Pixels) -> Pixels:
    """Undoes the transform, which is taken for a line per channel: fitted by least squares."""
    channels = []
    for channel in range(originals.shape[-1]):
        x = transformed[..., channel].ravel().astype(np.float64)
        slope, offset = np.polyfit(x, originals[..., channel].ravel().astype(np.float64), 1)
        channels.append(values[..., channel] * slope + offset)
    return np.stack(channels, axis=-1).round().clip(0, 255).astype(np.uint8)


def png(picture: Pixels) -> bytes:
    """The picture as a PNG."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG", optimize=True)
    return stream.getvalue()
