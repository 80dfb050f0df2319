"""Examples for ``stagecraft parity``."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import numpy as np

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.example_gen import source
from stagecraft.components.example_gen.archives.archive import Block
from stagecraft.components.example_gen.archives.layouts import TRAIN
from stagecraft.pipeline.settings import DataSettings, PipelineSettings
from stagecraft.schemas import features
from stagecraft.trainer_module.data import batch
from stagecraft.trainer_module.data.tasks.task import ModelArguments
from stagecraft.trainer_module.settings import TaskSettings

BATCHES = 8


def save(
    settings: PipelineSettings, batch_size: int, path: pathlib.Path, arguments: ModelArguments
) -> None:
    """Writes examples in the form of transformed ones.

    For pictures of CIFAR, these are the first images of the train part. Other examples are those
    that the task draws at random, or else the first ones of the data.

    Args:
        path: the ``.npz``, with the names of :func:`~.batch.to_arrays`.

    Raises:
        SettingError: the task draws no examples, and the data have no schema.
    """
    is_of_pictures = settings.task.name == TaskSettings().name
    if is_of_pictures and settings.data.generator(settings.task.found) == "cifar":
        save_images(settings.data, batch_size, path, arguments["num_classes"])
        return
    draw = np.random.default_rng(0)
    drawn = settings.task.found.noise(arguments, BATCHES * batch_size, draw)
    if drawn is None and settings.schema_path:
        from stagecraft.pipeline.local import transformed_data  # with TFX

        transformed_data.save(settings, settings.schema_path, BATCHES * batch_size, path)
        return
    if drawn is None:
        raise SettingError(
            "task.name",
            settings.task.name,
            "draws no examples, and without a schema there is no other way to get any",
            "data.schema_file, such as stagecraft schema writes",
        )
    inputs, targets = drawn
    np.savez(path, **batch.to_arrays("inputs", inputs), **batch.to_arrays("targets", targets))


def save_images(data: DataSettings, batch_size: int, path: pathlib.Path, classes: int) -> None:
    """Writes the first images of the train part, normalized per channel.

    Args:
        path: the ``.npz``: inputs float32 ``[n, 32, 32, 3]``, targets int64 ``[n]``.
    """
    properties = data.model_dump() | {"dataset": data.dataset_name, "source": data.local_path}
    blocks = _first(source.resolve(properties).blocks(lambda done, total: None), batch_size)
    planes = np.concatenate([block.planes for block in blocks])[: BATCHES * batch_size]
    labels = np.concatenate([block.labels for block in blocks])[: BATCHES * batch_size]
    if labels.max() >= classes:
        schema = data.schema_file or data.dataset_schema
        raise UserError(
            f"{schema}: the schema has {classes} classes, but data.source: {data.source} "
            f"has an image with label {labels.max()}; use a data.schema_file with int_domain "
            f"{{ min: 0 max: {labels.max()} }} or more",
            setting="data.schema_file",
            value=int(labels.max()),
            file=schema,
        )
    height, width, channels = features.IMAGE_SHAPE
    images = planes.reshape(-1, channels, height, width).transpose(0, 2, 3, 1).astype(np.float64)
    images = (images - images.mean((0, 1, 2))) / images.std((0, 1, 2))
    np.savez(path, inputs=images.astype(np.float32), targets=labels.astype(np.int64))


def _first(blocks: Iterator[Block], batch_size: int) -> list[Block]:
    first: list[Block] = []
    for block in blocks:
        if block.part == TRAIN:
            first.append(block)
        if sum(len(one.labels) for one in first) >= BATCHES * batch_size:
            break
    return first
