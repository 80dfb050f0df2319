"""The schemas say what features.py says, and TFDV and Transform take them."""

from __future__ import annotations

import pathlib

import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import schema_utils

from stagecraft.schemas import features
from stagecraft.trainer_module.data.schema_reader import IMAGE_SHAPE_TAG

pytestmark = pytest.mark.parametrize(
    "dataset", [*features.DATASETS.values(), features.SAMPLE], ids=lambda d: d.name
)
CLASSES = {"cifar10": 10, "cifar100": 100, "cifar100_coarse": 20, "sample": 10}


def read(dataset: features.DataSet) -> schema_pb2.Schema:
    return text_format.Parse(pathlib.Path(dataset.schema_file).read_text(), schema_pb2.Schema())


def test_agrees_with_features(dataset: features.DataSet) -> None:
    schema = read(dataset)
    image, label, example_id = schema.feature
    assert [f.name for f in schema.feature] == [features.IMAGE, features.LABEL, features.ID]
    shape = "x".join(map(str, features.IMAGE_SHAPE))
    assert list(image.annotation.tag) == [IMAGE_SHAPE_TAG + shape]
    assert (label.int_domain.min, label.int_domain.max) == (0, dataset.num_classes - 1)
    assert label.int_domain.is_categorical
    assert example_id.int_domain.min == 0
    (names,) = schema.string_domain
    assert names.name == "label_names"
    assert tuple(names.value) == dataset.label_names


def test_class_names_are_distinct(dataset: features.DataSet) -> None:
    assert len(set(dataset.label_names)) == dataset.num_classes
    assert dataset.num_classes == CLASSES[dataset.name]


def test_parses_to_one_value_each(dataset: features.DataSet) -> None:
    """Scalars: what preprocessing_fn gets is [batch], without an axis of length 1."""
    assert schema_utils.schema_as_feature_spec(read(dataset)).feature_spec == {
        features.IMAGE: tf.io.FixedLenFeature([], tf.string),
        features.LABEL: tf.io.FixedLenFeature([], tf.int64),
        features.ID: tf.io.FixedLenFeature([], tf.int64),
    }


def test_tfdv_takes_it(dataset: features.DataSet) -> None:
    """Also the domain of the class names, which no feature uses."""
    labels = range(dataset.num_classes)
    columns = {
        features.IMAGE: [[bytes(3072)] for _ in labels],
        features.LABEL: [[label] for label in labels],
        features.ID: [[label] for label in labels],
    }
    batch = pa.RecordBatch.from_arrays([pa.array(c) for c in columns.values()], list(columns))
    for options in (tfdv.StatsOptions(), tfdv.StatsOptions(schema=read(dataset))):
        statistics = stats_impl.generate_statistics_in_memory(batch, options)
        anomalies = tfdv.validate_statistics(statistics, read(dataset))
        assert not anomalies.anomaly_info
        assert not anomalies.data_missing
