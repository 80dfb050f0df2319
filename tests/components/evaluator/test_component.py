"""The Evaluator's executor: its checks before TFX's executor begins, and its metrics."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from apache_beam.options.pipeline_options import PipelineOptions
from damages import WAYS, files, fill
from tensorflow_model_analysis.evaluators import metrics_plots_and_validations_evaluator
from tensorflow_model_analysis.extractors import slice_key_extractor
from tensorflow_model_analysis.proto import config_pb2
from tfx.types import standard_artifacts

from stagecraft.components.evaluator.component import Executor
from stagecraft.components.evaluator.without_autograph import installed
from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.manifest import DamagedArtifactError

INPUTS = {"examples": "Examples", "model": "Model", "baseline_model": "Model"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", INPUTS)
def test_a_damaged_input_is_refused(tmp_path, key, way):
    """Also on a runner that compares no files."""
    inputs = {}
    for each, kind in INPUTS.items():
        artifact = getattr(standard_artifacts, kind)()
        fill(artifact, tmp_path / each)
        manifest.add(artifact.mlmd_artifact, kind)
        inputs[each] = [artifact]
    path = files(inputs[key][0].uri)[0]
    WAYS[way](path)
    with pytest.raises(DamagedArtifactError) as caught:
        Executor().Do(inputs, {}, {})
    assert (caught.value.file, caught.value.kind) == (str(path), INPUTS[key])


# Keras metrics run without AutoGraph, also on workers in other processes.


METRIC = """
import os, pathlib
import tensorflow as tf
from tensorflow_model_analysis.utils.keras_lib import tf_keras

class Status(tf_keras.metrics.Mean):
    "Writes the state of AutoGraph into a file with the name of the process."

    def update_state(self, labels, predictions, sample_weight=None):
        status = tf.__internal__.autograph.control_status_ctx().status.name
        pathlib.Path(os.environ["SEEN"], str(os.getpid())).write_text(status)
        return super().update_state(predictions, sample_weight)
"""


def evaluate(*args: str) -> None:
    """Computes the metric of a few predictions."""
    config = config_pb2.EvalConfig(
        model_specs=[config_pb2.ModelSpec(label_key="label")],
        slicing_specs=[config_pb2.SlicingSpec()],
        metrics_specs=[
            config_pb2.MetricsSpec(
                metrics=[config_pb2.MetricConfig(class_name="Status", module="status_metric")]
            )
        ],
    )
    batch: dict[str, Any] = {
        tfma.LABELS_KEY: np.zeros([3, 1]),
        tfma.PREDICTIONS_KEY: np.ones([3, 1]),
        tfma.FEATURES_KEY: {},
    }
    options = PipelineOptions(
        ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner", *args]
    )
    slices = slice_key_extractor.SliceKeyExtractor([tfma.slicer.SingleSliceSpec()])
    evaluator = metrics_plots_and_validations_evaluator.MetricsPlotsAndValidationsEvaluator(config)
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | beam.Create([batch])
            | slices.stage_name >> slices.ptransform
            | evaluator.stage_name >> evaluator.ptransform
        )


@pytest.mark.parametrize(
    ("mode", "block", "status"),
    [
        ("in_memory", contextlib.nullcontext, "UNSPECIFIED"),
        ("in_memory", installed, "DISABLED"),
        pytest.param("multi_processing", installed, "DISABLED", marks=pytest.mark.slow),
    ],
)
def test_no_worker_converts_keras_metrics(
    mode: str,
    block: Callable[[], contextlib.AbstractContextManager[None]],
    status: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AutoGraph converts a metric whose status is not specified: nine times its time."""
    (tmp_path / "status_metric.py").write_text(METRIC)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "status_metric", raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    seen = tmp_path / "seen"
    seen.mkdir()
    monkeypatch.setenv("SEEN", str(seen))
    with block():
        evaluate(f"--direct_running_mode={mode}", "--direct_num_workers=1")
    [file] = seen.iterdir()
    assert file.read_text() == status
    assert (file.name == str(os.getpid())) == (mode == "in_memory")
