"""SampleExampleGen: the sample that a task's program makes, as tf.Examples."""

from __future__ import annotations

import json
import numbers
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from google.protobuf import any_pb2, wrappers_pb2
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor
from tfx.components.example_gen.component import QueryBasedExampleGen
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.proto import example_gen_pb2

from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.trainer_module import registries


class Executor(BaseExampleGenExecutor):
    """Asks the task for its sample."""

    def GetInputSourceToExamplePTransform(self) -> Any:
        """See TFX's class."""
        return _sample


class SampleExampleGen(QueryBasedExampleGen):
    """Writes a task's sample in the splits of an ``output_config``."""

    def __init__(
        self,
        task: str,
        args: Mapping[str, Any] | None,
        output_config: example_gen_pb2.Output,
    ) -> None:
        """Names the task: ``task.name`` and ``task.args``."""
        query = json.dumps({"name": task, "args": args}, sort_keys=True)
        code = registries.task(task, args).code
        super().__init__(
            input_config=example_gen_pb2.Input(
                splits=[example_gen_pb2.Input.Split(name="sample", pattern=query)]
            ),
            output_config=output_config,
            custom_config=fingerprint(__name__, *code),
            custom_executor_spec=BeamExecutorSpec(Executor),
        )


def fingerprint(*code: str) -> example_gen_pb2.CustomConfig:
    """A custom config with a fingerprint of code, for TFX's cache key."""
    return custom_config(code_fingerprint(*code))


def custom_config(text: str) -> example_gen_pb2.CustomConfig:
    """A custom config with a text, which becomes part of TFX's cache key."""
    packed = any_pb2.Any()
    packed.Pack(wrappers_pb2.StringValue(value=text))
    return example_gen_pb2.CustomConfig(custom_config=packed)


@beam.ptransform_fn
@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tf.train.Example)
def _sample(pipeline: Any, exec_properties: Mapping[str, Any], split_pattern: str) -> Any:
    query = json.loads(split_pattern)
    return (
        pipeline
        | beam.Create([None])
        | beam.FlatMap(lambda _: registries.task(query["name"], query["args"]).sample())
        | beam.Reshuffle()
        | beam.Map(to_example)
    )


def to_example(row: Mapping[str, Any]) -> tf.train.Example:
    """An example of :meth:`Task.sample`."""
    return tf.train.Example(
        features=tf.train.Features(feature={name: _feature(each) for name, each in row.items()})
    )


def _feature(value: Any) -> tf.train.Feature:
    """A number, a text, bytes, or a list of them; none or None is a missing value."""
    values = value if isinstance(value, (list, tuple, np.ndarray)) else [value]
    values = [each for each in values if each is not None]
    if not values:
        return tf.train.Feature()
    if isinstance(values[0], (str, bytes)):
        texts = [each.encode() if isinstance(each, str) else each for each in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    if all(isinstance(each, numbers.Integral) for each in values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))
