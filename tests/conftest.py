"""Fixtures shared by all tests."""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import marks
import pytest
from made_once import made_once

pytest_plugins = ["beam_engines.flink", "fake_parity", "object_stores", "programs"]

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONGEST = (
    "test_image_runs.py",
    "docs/test_reading.py",
    "e2e/test_kubeflow.py",
    "e2e/test_beam_engines.py",
    "trainer_module/models/layers/test_catalogue.py",
    "trainer_module/parity/test_topologies.py",
    "e2e/test_secrets.py",
    "components/kubernetes/cluster/test_stores.py",
    "trainer_module/parity/test_users_models.py",
    "benchmarks/test_faults.py",
    "e2e/test_again.py",
    "e2e/test_topologies.py",
    "e2e/test_interrupt.py",
    "e2e/test_quickstart.py",
    "e2e/test_bad_input.py",
    "pipeline/kubeflow/test_pipelines_of_users.py",
    "components/kubernetes/cluster/test_kinds.py",
    "components/kubernetes/cluster/test_evictions.py",
    "contrib/tfx_command/test_long_form.py",
    "components/kubernetes/cluster/test_failures.py",
    "benchmarks/test_smoke.py",
    "benchmarks/test_sitting.py",
    "test_packaging.py",
    "test_install.py",
    "docs/test_notebook.py",
    "docs/test_serve.py",
    "pipeline/cli/project/test_runners.py",
    "pipeline/local/test_worker.py",
    "pipeline/local/test_runners.py",
    "trainer_module/processes/test_supervisor.py",
    "components/kubernetes/cluster/test_recordings.py",
    "components/anomaly_gate/test_anomaly_gate.py",
    "trainer_module/engines/test_processes.py",
    "trainer_module/engines/test_parameter_server.py",
    "trainer_module/data/test_input_data.py",
    "trainer_module/models/initial_weights/test_loading.py",
    "pipeline/kubeflow/test_verdicts.py",
    "trainer_module/parity/test_check.py",
    "components/example_gen/test_example_gen.py",
    "trainer_module/test_other_package.py",
    "components/report/pages/test_page.py",
    "components/kubernetes/cluster/test_attempts.py",
    "trainer_module/test_run_fn.py",
    "pipeline/test_kubeflow_v2_runner.py",
    "trainer_module/models/test_networks.py",
    "pipeline/kubeflow/test_defects.py",
)
"""Files of half a minute or more. They come first, so that no worker is left alone with one."""

ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")


def pytest_configure() -> None:
    """Signals are tested by sending them, and background jobs and nohup start with some ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)  # before ``-m`` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unknown = marks.give(items)
    if unknown and not any("::" in word for word in config.args):
        raise pytest.UsageError(f"tests/marks.txt: no test has the name of {unknown[0]}")
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def cifar10_small(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder with 5,000 + 1,000 real pictures in both official layouts.

    From the folder that STAGECRAFT_CIFAR10 names, or made by ../shared; skipped where neither is.
    """
    given = os.environ.get("STAGECRAFT_CIFAR10")
    if given:
        folder = pathlib.Path(given)
        missing = [name for name in ARCHIVES if not (folder / name).exists()]
        if missing:
            pytest.fail(f"STAGECRAFT_CIFAR10={given} lacks {', '.join(missing)}")
        return folder
    maker = ROOT.parent / "shared" / "cifar10" / "make_archives.py"
    if not maker.exists():
        pytest.skip("no real CIFAR-10: set STAGECRAFT_CIFAR10 to a folder with its archives")
    if importlib.util.find_spec("PIL") is None:
        pytest.skip("making the CIFAR-10 archives needs Pillow")

    def make(folder: pathlib.Path) -> None:
        words = [sys.executable, maker, folder, "--train", "5000", "--test", "1000"]
        subprocess.run(words, check=True, capture_output=True)

    return made_once(tmp_path_factory, "cifar10", make)


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """What a Trainer reads: 24 train, 10 val and 10 eval pictures of four classes."""

    examples: pathlib.Path
    """Folder of ``Split-train/``, ``Split-val/`` and ``Split-eval/``, two files each."""

    transform_graph: pathlib.Path
    schema: pathlib.Path
    """Folder of ``schema.pbtxt``."""

    def files(self, split: str) -> list[str]:
        return [str(self.examples / f"Split-{split}" / "*")]

    def serialized(self, split: str) -> list[bytes]:
        """All examples of a split, in the order of its files."""
        import tensorflow as tf

        files = sorted(map(str, self.examples.glob(f"Split-{split}/*")))
        return list(tf.data.TFRecordDataset(files).as_numpy_iterator())


def _serialize(row: dict[str, Any]) -> bytes:
    import tensorflow as tf

    def feature(value: bytes | int) -> tf.train.Feature:
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    by_name = {name: feature(value) for name, value in row.items()}
    return tf.train.Example(features=tf.train.Features(feature=by_name)).SerializeToString()


@pytest.fixture(scope="session")
def training_data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """Tiny raw examples with the transform graph of our ``preprocessing_fn`` over them."""
    return _training_data(made_once(tmp_path_factory, "training_data", _write_training_data))


def _training_data(folder: pathlib.Path) -> TrainingData:
    return TrainingData(folder / "examples", folder / "transform_graph", folder / "schema")


def _write_training_data(folder: pathlib.Path) -> None:
    import apache_beam as beam
    import numpy as np
    import tensorflow as tf
    import tensorflow_transform.beam as tft_beam
    from apache_beam.runners.portability import fn_api_runner
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io

    from stagecraft.schemas import features
    from stagecraft.trainer_module.preprocessing import preprocessing_fn

    data = _training_data(folder)
    text = pathlib.Path(features.DATASETS["cifar10"].schema_file).read_text()
    lines = text.replace("max: 9", "max: 3").splitlines()
    first_name = lines.index('  value: "airplane"')
    del lines[first_name + 4 : first_name + 10]
    data.schema.mkdir()
    (data.schema / "schema.pbtxt").write_text("\n".join(lines))

    draw = np.random.RandomState(0)
    rows = []
    for index in range(44):
        image, label = draw.randint(0, 256, features.IMAGE_SHAPE), index % 4
        image[:, :, label % 3] //= 1 + label  # so that there is something to learn
        values = {features.IMAGE: image.astype(np.uint8).tobytes(), features.LABEL: label}
        rows.append(values | {features.ID: index})
    splits = {"train": rows[:24], "val": rows[24:34], "eval": rows[34:]}
    for split, members in splits.items():
        (data.examples / f"Split-{split}").mkdir(parents=True)
        for part in (0, 1):
            path = data.examples / f"Split-{split}" / f"data_tfrecord-0000{part}-of-00002"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for row in members[part::2]:
                    writer.write(_serialize(row))

    schema = text_format.Parse((data.schema / "schema.pbtxt").read_text(), schema_pb2.Schema())
    metadata = dataset_metadata.DatasetMetadata(schema)
    with (
        beam.Pipeline(runner=fn_api_runner.FnApiRunner()) as pipeline,
        # Batches of 7 do not divide 24: the last one is short.
        tft_beam.Context(temp_dir=str(folder / "tmp"), desired_batch_size=7),
    ):
        raw = pipeline | beam.Create(splits["train"])
        transform = (raw, metadata) | tft_beam.AnalyzeDataset(preprocessing_fn)
        transform | tft_beam.WriteTransformFn(str(data.transform_graph))
    metadata_io.write_metadata(metadata, str(data.transform_graph / "metadata"))
