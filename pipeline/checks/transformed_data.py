"""Examples of any task for ``stagecraft parity``, transformed without a pipeline."""

from __future__ import annotations

import functools
import itertools
import pathlib
import pkgutil
import tempfile
from collections.abc import Mapping, Sequence

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam.options.pipeline_options import PipelineOptions
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

from stagecraft.components.example_gen.content import Source
from stagecraft.pipeline.data import example_gen
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.schemas.features import TRAIN
from stagecraft.trainer_module.data import batch, labels


def save(settings: PipelineSettings, schema_path: str, count: int, path: pathlib.Path) -> None:
    """Writes the first ``count`` examples of the train split, transformed by the task.

    Transform's vocabularies and moments are those of these examples alone.

    Args:
        path: the ``.npz``, with the names of :func:`~.batch.to_arrays`.
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        records = _first_examples(settings, count, f"{folder}/content")
        transformed = _transformed(settings, schema_path, records, folder)
        whole = settings.task.found.batch(transformed, tf.ones([len(records)]))
    arrays = batch.to_arrays("inputs", whole.inputs) | batch.to_arrays("targets", whole.targets)
    np.savez(path, **arrays)


def _first_examples(settings: PipelineSettings, count: int, folder: str) -> list[bytes]:
    component = example_gen(settings, settings.data.source)
    found: Source = component.DRIVER_CLASS.resolve(component.exec_properties)
    whole = found.content(folder, lambda done, total: None)
    ids = whole.split_ids(settings.data.val_fraction)[TRAIN]
    records = list(whole.examples(ids[:count]))
    return list(itertools.islice(itertools.cycle(records), count))


def _transformed(
    settings: PipelineSettings, schema_path: str, records: Sequence[bytes], folder: str
) -> Mapping[str, tf.Tensor]:
    """The transformed features of serialized examples, ``[n, …]``."""
    task, schema = settings.task.found, labels.read(schema_path)
    spec = schema_utils.schema_as_feature_spec(schema).feature_spec
    raw = tf.io.parse_example(tf.constant(records), spec)
    values = {name: each.numpy() for name, each in raw.items()}
    rows = [{name: of[index] for name, of in values.items()} for index in range(len(records))]
    function = functools.partial(
        pkgutil.resolve_name(task.preprocessing_fn),
        custom_config=task.preprocessing_config(schema_path),
    )
    with (
        beam.Pipeline(options=PipelineOptions([])) as pipeline,
        tft_beam.Context(temp_dir=f"{folder}/scratch"),
    ):
        data = (pipeline | beam.Create(rows), dataset_metadata.DatasetMetadata(schema))
        graph = data | tft_beam.AnalyzeDataset(function)
        graph | tft_beam.WriteTransformFn(f"{folder}/graph")
    layer = tft.TFTransformOutput(f"{folder}/graph").transform_features_layer()
    transformed: Mapping[str, tf.Tensor] = layer(raw)
    return transformed
