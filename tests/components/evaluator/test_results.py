"""TFMA's files, read without TFMA."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf
from google.protobuf.wrappers_pb2 import DoubleValue
from tensorflow_model_analysis.proto import metrics_for_slice_pb2, validation_result_pb2

from stagecraft.components.evaluator import results

READ = """
import json
import sys

if sys.argv[2] == "TFMA first":
    import tensorflow_model_analysis as tfma
from stagecraft.components.evaluator import results

folder = sys.argv[1]
read = (
    list(results.load_metrics(folder)),
    list(results.load_plots(folder)),
    results.load_validation_result(folder),
)
heavy = {"apache_beam", "tensorflow_model_analysis"} & sys.modules.keys()
import tensorflow_model_analysis as tfma

theirs = (
    list(tfma.load_metrics(folder)),
    list(tfma.load_plots(folder)),
    tfma.load_validation_result(folder),
)
print(json.dumps({
    "heavy": sorted(heavy),
    "read": [len(read[0]), len(read[1]), len(read[2].metric_validations_per_slice)],
    "equal": read == theirs,
    "classes": type(read[0][0]) is type(theirs[0][0]) and type(read[2]) is type(theirs[2]),
}))
"""


@pytest.fixture
def folder(tmp_path):
    metrics = [metrics_for_slice_pb2.MetricsForSlice() for _ in range(3)]
    for number, each in enumerate(metrics):
        each.metric_keys_and_values.add().value.double_value.value = number / 3
    plots = metrics_for_slice_pb2.PlotsForSlice()
    plots.plot_keys_and_values.add().key.name = "a_plot"
    validation = validation_result_pb2.ValidationResult()
    validation.metric_validations_per_slice.add().failures.add().metric_key.name = "accuracy"
    for name, messages in (
        ("metrics-00000-of-00002", metrics[:2]),
        ("metrics-00001-of-00002", metrics[2:]),
        ("plots-00000-of-00001", [plots]),
        ("validations", [validation]),
    ):
        with tf.io.TFRecordWriter(os.path.join(tmp_path, f"{name}.tfrecord")) as writer:
            for message in messages:
                writer.write(message.SerializeToString())
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "heavy"),
    [("TFMA last", []), ("TFMA first", ["apache_beam", "tensorflow_model_analysis"])],
)
def test_reads_what_tfma_reads(folder, order, heavy):
    """Also a TFMA that is imported later has the same message classes."""
    ended = subprocess.run(
        [sys.executable, "-c", READ, folder, order], check=True, capture_output=True, text=True
    )
    assert json.loads(ended.stdout.splitlines()[-1]) == {
        "heavy": heavy,
        "read": [3, 1, 1],
        "equal": True,
        "classes": True,
    }


@pytest.mark.parametrize(
    ("value", "shown"), [(0.1, "0.1"), (3.0, "3"), (1234567.0, "1234567"), (1234568.0, "1234568")]
)
def test_the_value_of_a_slice(value, shown):
    message = metrics_for_slice_pb2.SingleSliceKey(column="x", float_value=value)
    assert results._slice_value(message) == shown


def test_slices_of_equal_names(folder):
    (folder / "eval_config.json").write_text('{"evalConfig": {}}')
    with tf.io.TFRecordWriter(str(folder / "metrics-2.tfrecord")) as writer:
        for value in (b"\xfe", b"\xff"):  # no UTF-8
            message = metrics_for_slice_pb2.MetricsForSlice()
            message.slice_key.single_slice_keys.add(column="x", bytes_value=value)
            writer.write(message.SerializeToString())
    assert len(results.read_evaluation(str(folder)).slices) == 2


def test_a_folder_without_plots(tmp_path):
    assert list(results.load_plots(str(tmp_path))) == []


@pytest.mark.parametrize(("value", "is_defined"), [(0.0, False), (0.25, True)])
def test_the_auc_of_one_class_is_undefined(folder, value, is_defined):
    """TFMA's AUC of examples of one class is 0; an accuracy of 0 is one."""
    metrics = [{"className": "AUC"}, {"className": "Mean", "config": '"name": "accuracy"'}]
    config = {"evalConfig": {"metricsSpecs": [{"metrics": metrics}]}}
    (folder / "eval_config.json").write_text(json.dumps(config))
    message = metrics_for_slice_pb2.MetricsForSlice()
    message.slice_key.single_slice_keys.add(column="region", bytes_value=b"north")
    for name, number in (("auc", value), ("accuracy", 0.0)):
        metric = message.metric_keys_and_values.add()
        metric.key.name = name
        metric.value.double_value.CopyFrom(DoubleValue(value=number))
    for path in folder.glob("metrics*"):
        path.unlink()
    with tf.io.TFRecordWriter(str(folder / "metrics.tfrecord")) as writer:
        writer.write(message.SerializeToString())
    [found] = results.read_evaluation(str(folder)).slices
    assert found.metrics["accuracy"] == 0
    assert (found.metrics["auc"] == value) is is_defined
