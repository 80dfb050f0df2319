"""SequenceExampleGen: tf.SequenceExamples as tf.Examples, whose features may have several values.

StatisticsGen, Transform, the Trainer and the Evaluator then read them as they read all examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import tensorflow as tf
from google.protobuf.message import DecodeError
from tfx.components.example_gen.base_example_gen_executor import BaseExampleGenExecutor

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen.kinds import columns


class SequenceExecutor(BaseExampleGenExecutor):
    """Reads TFRecords of tf.SequenceExamples."""

    def GetInputSourceToExamplePTransform(self) -> Any:
        """See TFX's class."""
        return _sequences


class SequenceExampleGen(columns.TableExampleGen):
    """Writes tf.SequenceExamples as tf.Examples.

    A feature of the context stays as it is; a feature list becomes a feature with the values of all
    steps, one after the other.
    """

    EXECUTOR = SequenceExecutor


@beam.ptransform_fn
@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tf.train.Example)
def _sequences(pipeline: Any, exec_properties: Mapping[str, Any], split_pattern: str) -> Any:
    paths = columns.files(exec_properties, split_pattern)
    return (
        pipeline
        | beam.Create(paths)
        | beam.io.ReadAllFromTFRecord(with_filename=True)
        | beam.MapTuple(example)
    )


def example(path: str, record: bytes) -> tf.train.Example:
    """A tf.Example with the values of a tf.SequenceExample.

    Args:
        path: of the file, for errors.

    Raises:
        UserError: it is no SequenceExample, or a tf.Example cannot hold its values.
    """
    try:
        given = tf.train.SequenceExample.FromString(record)
    except DecodeError:
        raise columns.unreadable(path, "TFRecords of tf.SequenceExamples") from None
    found = tf.train.Example(features=given.context)
    for name, steps in given.feature_lists.feature_list.items():
        if name in found.features.feature:
            problem = "is a feature of the context and a feature list"
            raise _refused(path, name, problem, "two names")
        kinds = {each.WhichOneof("kind") for each in steps.feature} - {None}
        if not kinds:
            found.features.feature[name].SetInParent()
            continue
        if len(kinds) > 1:
            raise _refused(path, name, "has steps of several types", "one type")
        [kind] = kinds
        values = [list(getattr(each, kind).value) for each in steps.feature]
        gap = {"float_list": math.nan, "bytes_list": b""}.get(kind)
        sizes = set(map(len, values))
        if sizes == {0, 1} and gap is not None:
            values = [each or [gap] for each in values]
        elif len(sizes) > 1:
            problem = f"has {min(sizes)} to {max(sizes)} values in a step"
            raise _refused(path, name, problem, "as many values in each step")
        flat = [value for each in values for value in each]
        getattr(found.features.feature[name], kind).value.extend(flat)
    return found


def _refused(path: str, name: str, problem: str, use: str) -> UserError:
    message = f"{path}: the feature list {name!r} {problem}; use {use}"
    return UserError(message, file=path, record=name, suggestion=use)
