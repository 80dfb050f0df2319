"""Examples of any task for ``stagecraft parity``, transformed without a pipeline."""

from __future__ import annotations

import functools
import inspect
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
from tensorflow_transform.tf_metadata import schema_utils
from tfx_bsl.public import tfxio

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen import driver
from stagecraft.components.example_gen.content import Refused, Source
from stagecraft.components.example_gen.executor import CorruptFilesError
from stagecraft.pipeline.data import example_gen, preprocessing
from stagecraft.pipeline.local import layout
from stagecraft.pipeline.local.protocol import RunSpec
from stagecraft.pipeline.local.supervisor import supervise
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.pipeline.settings.data import ANY_EXAMPLE_GEN
from stagecraft.schemas.features import TRAIN
from stagecraft.trainer_module.data import batch, example_files, schema_reader


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
    component = example_gen(settings)
    if issubclass(component.DRIVER_CLASS, driver.Driver):  # reads no more than it needs
        properties, _ = driver.located(component.exec_properties)
        found: Source = component.DRIVER_CLASS.resolve(properties)
        whole = found.content(folder, lambda done, total: None)
        ids = whole.split_ids(settings.data.val_fraction)[TRAIN]
        given = list(whole.examples(ids[:count]))
        records = [each for each in given if isinstance(each, bytes)]
        if not records:
            raise CorruptFilesError([each for each in given if isinstance(each, Refused)])
    else:
        files = example_files.expand([_train_files(settings, pathlib.Path(folder))])
        dataset = example_files.records(files).take(count)
        records = list(dataset.as_numpy_iterator())
    return list(itertools.islice(itertools.cycle(records), count))


def _train_files(settings: PipelineSettings, output: pathlib.Path) -> str:
    """Runs the pipeline's ExampleGen; returns the pattern of the train split's files.

    Raises:
        UserError: it failed.
    """
    with tempfile.TemporaryFile() as log:
        outcome = supervise(
            RunSpec(settings, output, to_node=ANY_EXAMPLE_GEN), log, lambda event: None
        )
    if outcome.status == "interrupted":
        raise KeyboardInterrupt
    if outcome.status != "ok":
        raise UserError(f"{ANY_EXAMPLE_GEN} failed: {outcome.cause}", setting="data.example_gen")
    (examples,) = (layout.pipeline_root(output) / ANY_EXAMPLE_GEN / "examples").iterdir()
    return str(examples / f"Split-{settings.data.train_split}" / "*")


def _transformed(
    settings: PipelineSettings, schema_path: str, records: Sequence[bytes], folder: str
) -> Mapping[str, tf.Tensor]:
    """The transformed features of serialized examples, ``[n, …]``."""
    schema = schema_reader.read(schema_path)
    path, config = preprocessing(settings)
    function = pkgutil.resolve_name(path)
    if "custom_config" in inspect.signature(function).parameters:  # as TFX's Transform asks
        function = functools.partial(function, custom_config=config)
    source = tfxio.TFExampleBeamRecord("parity", schema=schema)
    with (
        beam.Pipeline(options=PipelineOptions([])) as pipeline,
        tft_beam.Context(temp_dir=f"{folder}/scratch"),
    ):
        data = pipeline | beam.Create(records) | source.BeamSource()
        graph = (data, source.TensorAdapterConfig()) | tft_beam.AnalyzeDataset(function)
        graph | tft_beam.WriteTransformFn(f"{folder}/graph")
    spec = schema_utils.schema_as_feature_spec(schema).feature_spec
    raw = tf.io.parse_example(tf.constant(records), spec)
    layer = tft.TFTransformOutput(f"{folder}/graph").transform_features_layer()
    transformed: Mapping[str, tf.Tensor] = layer(raw)
    return transformed
