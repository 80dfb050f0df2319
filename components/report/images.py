"""Finds images of examples, augments them as in training, and encodes them."""

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

from stagecraft.common.text import visible
from stagecraft.components.report.report_data import Augmented
from stagecraft.schemas import features
from stagecraft.trainer_module import preprocessing
from stagecraft.trainer_module.data import example_files
from stagecraft.trainer_module.data.augment import augment
from stagecraft.trainer_module.data.schema_reader import ENCODED_CHANNELS, Picture

_BATCH = 2048

DEFAULT = Picture()

_EPOCHS = 5
Pixels = npt.NDArray[np.uint8]  # ``[height, width, channels]``


class Scan(NamedTuple):
    """The result of one pass over a split."""

    counts: list[int]  # examples per class
    first: dict[int, bytes]  # the first serialized example of each class
    wanted: dict[int, Pixels]
    names: dict[int, str]  # the files of those, if the examples have names


def scan(
    files: Sequence[str], classes: int, ids: Collection[int] = (), picture: Picture = DEFAULT
) -> Scan:
    """Reads a split once; ``files`` are paths or patterns of TFRecords of raw examples."""
    spec = {
        name: tf.io.FixedLenFeature([], tf.int64, default_value=-1)
        for name in (features.LABEL, features.ID)
    }
    counts = np.zeros(classes, np.int64)
    first: dict[int, bytes] = {}
    wanted: dict[int, Pixels] = {}
    names: dict[int, str] = {}
    for records in example_files.records(example_files.expand(files)).batch(_BATCH):
        parsed = tf.io.parse_example(records, spec)
        labels = parsed[features.LABEL].numpy()
        counts += np.bincount(labels[labels >= 0], minlength=classes)[:classes]
        for label, position in zip(*np.unique(labels, return_index=True), strict=True):
            first.setdefault(int(label), records[position].numpy())
        for position in np.flatnonzero(np.isin(parsed[features.ID].numpy(), list(ids))):
            example_id, record = int(parsed[features.ID][position]), records[position].numpy()
            wanted[example_id] = pixels(record, picture)
            example = tf.train.Example.FromString(record).features.feature
            if name := example[features.FILE_NAME].bytes_list.value[:1]:
                names[example_id] = visible(name[0].decode(errors="replace"))
    return Scan(counts.tolist(), dict(sorted(first.items())), wanted, names)


def pixels(record: bytes, picture: Picture = DEFAULT) -> Pixels:
    """The image of a raw example."""
    raw = tf.train.Example.FromString(record).features.feature[features.IMAGE].bytes_list.value[0]
    decoded = preprocessing.decode(tf.constant([raw]), picture.config())[0].numpy()
    shown: Pixels = (decoded >> (picture.bits - 8)).astype(np.uint8)
    return shown


def augmented(
    records: Sequence[bytes],
    labels: Sequence[str],
    transform_graph: str,
    *,
    seed: int,
    augmentations: Sequence[str],
    picture: Picture = DEFAULT,
) -> list[Augmented]:
    """Augments some examples as the Trainer does in the first epochs; none without names."""
    if not augmentations:
        return []
    transform = tft.TFTransformOutput(transform_graph)
    raw = tf.io.parse_example(tf.constant(list(records)), transform.raw_feature_spec())
    loader = SavedModelLoader(transform.transform_savedmodel_dir)
    inputs = loader.apply_transform_model(raw)
    images = inputs[features.IMAGE]
    originals = np.stack([pixels(record, picture) for record in records])
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
    """Inverts the transform, by a linear least-squares fit of each channel."""
    channels = []
    for channel in range(originals.shape[-1]):
        x = transformed[..., channel].ravel().astype(np.float64)
        slope, offset = np.polyfit(x, originals[..., channel].ravel().astype(np.float64), 1)
        channels.append(values[..., channel] * slope + offset)
    return np.stack(channels, axis=-1).round().clip(0, 255).astype(np.uint8)


def png(image: Pixels) -> bytes:
    """Encodes an image as PNG: of 1, 3 or 4 channels; of another number, the first as grey."""
    stream = io.BytesIO()
    if image.shape[-1] not in ENCODED_CHANNELS:
        image = image[..., :1]
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(
        stream, "PNG", optimize=True
    )
    return stream.getvalue()
