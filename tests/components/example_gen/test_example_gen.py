"""The component as TFX runs it: what it writes, when it writes it again, what failing leaves."""

import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from ml_metadata import metadata_store
from ml_metadata.proto import metadata_store_pb2
from tfx.components.util import examples_utils, tfxio_utils
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.types import standard_artifacts
from tfx_bsl.tfxio import dataset_options

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.example_gen import source
from stagecraft.components.example_gen.archives import records, sample
from stagecraft.components.example_gen.component import Cifar10ExampleGen
from stagecraft.components.example_gen.executor import Executor
from stagecraft.components.metadata.outputs import OutputExistsError
from stagecraft.schemas import features

# An image named here keeps TFX from packing itself up for workers elsewhere, which takes seconds.
BEAM_ARGS = ["--direct_running_mode=in_memory", "--sdk_container_image=unused"]


def execute(folder: pathlib.Path, *, executor: type[Executor] = Executor, **properties: Any) -> Any:
    """Runs the executor alone, as a container without drivers does."""
    examples = standard_artifacts.Examples()
    examples.uri = str(folder)
    folder.mkdir(parents=True)
    defaults = {
        "dataset": "cifar10",
        "val_fraction": 0.1,
        "shards": 4,
        "sample_train": 30,
        "sample_test": 10,
        "cache_dir": "/nowhere",
    }
    executor().Do({}, {"examples": [examples]}, defaults | properties)
    return examples


def parse(folder: pathlib.Path, split: str) -> list[tuple[int, int, bytes]]:
    """Id, label and picture of a split's examples."""
    parsed = []
    for path in sorted((folder / f"Split-{split}").iterdir()):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            assert set(feature) == {features.IMAGE, features.LABEL, features.ID}
            [image] = feature[features.IMAGE].bytes_list.value
            [label] = feature[features.LABEL].int64_list.value
            [example_id] = feature[features.ID].int64_list.value
            parsed.append((example_id, label, image))
    return parsed


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_writes_every_example_once_and_right(tiny):
    folder = tiny.folder / "out"
    examples = execute(folder, source=tiny.pack(tiny.binary()))
    parsed = {split: parse(folder, split) for split in ("train", "val", "eval")}
    counts = {split: len(rows) for split, rows in parsed.items()}
    assert counts == {"train": 27, "val": 3, "eval": 10}
    for split, count in counts.items():
        assert examples.get_int_custom_property(f"count_{split}") == count
    assert [row[0] for row in parsed["eval"]] == list(range(30, 40))
    rows = sorted(row for split in parsed.values() for row in split)
    assert [row[0] for row in rows] == list(range(40))
    for example_id, label, image in rows:
        assert label == tiny.labels[example_id]
        picture = np.frombuffer(image, np.uint8).reshape(features.IMAGE_SHAPE)
        planes = tiny.planes[example_id].reshape(3, 32, 32)
        np.testing.assert_array_equal(picture, planes.transpose(1, 2, 0))


def test_the_files_are_as_tfx_expects(tiny):
    folder = tiny.folder / "out"
    examples = execute(folder, source=tiny.pack(tiny.binary()), shards=48)
    assert set(contents(folder)) == {
        f"Split-{split}/data_tfrecord-{shard:05d}-of-00048"
        for split in ("train", "val", "eval")
        for shard in range(48)
    } | {".manifest.json"}
    assert examples_utils.get_payload_format_string(examples) == "FORMAT_TF_EXAMPLE"
    # 27 examples in 48 files, read as TFX's own components read them.
    read = tfxio_utils.get_record_batch_factory_from_artifact([examples], ["test"])
    options = dataset_options.RecordBatchesOptions(batch_size=5, num_epochs=1)
    batches = read([str(folder / "Split-train" / "*")], options, None)
    assert sum(batch.num_rows for batch in batches) == 27


def test_all_forms_of_the_same_data_give_the_same_bytes(tiny):
    sources = [
        tiny.pack(tiny.binary(), "binary.tar.gz"),
        tiny.pack(tiny.python(), "python.tar.gz"),
        tiny.unpack(tiny.binary(), "binary"),
        tiny.unpack(tiny.python(4), "python"),
    ]
    first, *others = (
        contents(pathlib.Path(execute(tiny.folder / f"out{i}", source=path).uri))
        for i, path in enumerate(sources)
    )
    assert all(other == first for other in others)
    assert sum(map(len, first.values())) > 40 * 3072


def test_the_number_of_shards_changes_no_example(tiny):
    path = tiny.pack(tiny.binary())
    for shards_ in (1, 7):
        execute(tiny.folder / f"out{shards_}", source=path, shards=shards_)
    for split in ("train", "val", "eval"):
        assert parse(tiny.folder / "out1", split) == parse(tiny.folder / "out7", split)


def test_slices_may_cross_files_and_blocks(tmp_path):
    n = 2 * records.BLOCK + 100
    sample.write(tmp_path / "data", n, 10)
    folder = pathlib.Path(execute(tmp_path / "out", source=str(tmp_path / "data"), shards=1).uri)
    rows = sorted(parse(folder, "train") + parse(folder, "val"))
    labels = [label for block in sample.blocks(n, 10) for label in block.labels][:n]
    assert [row[:2] for row in rows] == list(enumerate(labels))


def test_serialized_as_protobuf_does():
    labels, ids = np.array([0, 99], np.uint8), np.array([5, 1 << 40])
    planes = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)
    for row, data in enumerate(source.serialize(labels, planes, ids)):
        example = tf.train.Example()
        feature = example.features.feature
        hwc = planes[row].reshape(3, 1024).T.tobytes()
        feature[features.IMAGE].bytes_list.value.append(hwc)
        feature[features.LABEL].int64_list.value.append(int(labels[row]))
        feature[features.ID].int64_list.value.append(int(ids[row]))
        assert data == example.SerializeToString(deterministic=True)


def test_the_sample_says_that_it_is_one(tmp_path):
    examples = execute(tmp_path / "out", source="sample")
    assert examples.get_string_custom_property("source") == "sample"
    assert len(parse(tmp_path / "out", "eval")) == 10


# What failing leaves: the artifact's empty folder, which is TFX's.


def left(folder: pathlib.Path) -> list[pathlib.Path]:
    return list(folder.rglob("*"))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a worker died")])
def test_an_interruption_leaves_nothing(tiny, monkeypatch, error):
    path = tiny.pack(tiny.binary())
    for stage, name in ((source.archive, "read"), (source, "serialize")):
        with monkeypatch.context() as patch:

            def fail(*_: Any) -> Any:
                raise error

            patch.setattr(stage, name, fail)
            with pytest.raises((KeyboardInterrupt, RuntimeError)):
                execute(tiny.folder / name, source=path)
        assert not left(tiny.folder / name)


@pytest.mark.parametrize("stage", [source.archive, source])
def test_a_full_disk_is_named(tiny, monkeypatch, stage):
    def fail(*_: Any) -> Any:
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")

    monkeypatch.setattr(stage, "read" if stage is source.archive else "serialize", fail)
    with pytest.raises(UserError, match="about"):
        execute(tiny.folder / "out", source=tiny.pack(tiny.binary()))
    assert not left(tiny.folder / "out")


def test_data_that_changes_meanwhile_is_refused(tiny):
    with pytest.raises(UserError, match="changed while it"):
        execute(tiny.folder / "out", source=tiny.pack(tiny.binary()), fingerprint="another")
    assert not left(tiny.folder / "out")


# When TFX runs it again.


class Runs:
    """Runs of a pipeline of this one component."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._root = folder / "pipeline"
        self._metadata = folder / "metadata.db"

    def run(self, **arguments: Any) -> metadata_store_pb2.Execution:
        """Runs it and returns what TFX recorded."""
        pipeline = Pipeline(
            "pipeline",
            str(self._root),
            components=[Cifar10ExampleGen(**{"shards": 2} | arguments)],
            enable_cache=True,
            metadata_connection_config=sqlite_metadata_connection_config(str(self._metadata)),
            beam_pipeline_args=BEAM_ARGS,
        )
        try:
            LocalDagRunner().run(pipeline)
        finally:
            self.executions = self.store().get_executions()
        return self.executions[-1]

    def store(self) -> metadata_store.MetadataStore:
        config = metadata_store_pb2.ConnectionConfig()
        config.sqlite.filename_uri = str(self._metadata)
        return metadata_store.MetadataStore(config)

    def artifacts(self) -> list[metadata_store_pb2.Artifact]:
        return list(self.store().get_artifacts())

    def files(self) -> list[pathlib.Path]:
        """Everything under the component's outputs."""
        return left(self._root / "Cifar10ExampleGen" / "examples")


COMPLETE = metadata_store_pb2.Execution.COMPLETE
CACHED = metadata_store_pb2.Execution.CACHED
FAILED = metadata_store_pb2.Execution.FAILED


def test_runs_again_exactly_when_the_content_changes(tiny):
    runs = Runs(tiny.folder)
    path = pathlib.Path(tiny.pack(tiny.binary()))
    execution = runs.run(source=str(path))
    assert execution.last_known_state == COMPLETE
    assert execution.custom_properties["source"].string_value == str(path)
    assert len(execution.custom_properties["fingerprint"].string_value) == 64
    [artifact] = runs.artifacts()
    assert json.loads(artifact.properties["split_names"].string_value) == ["train", "val", "eval"]
    assert artifact.custom_properties["count_train"].int_value == 27
    assert artifact.custom_properties["count_val"].int_value == 3
    assert artifact.custom_properties["count_eval"].int_value == 10

    assert runs.run(source=str(path)).last_known_state == CACHED
    # The same content elsewhere, with settings that say nothing about it.
    copied = shutil.copy(path, tiny.folder / "copied.tar.gz")
    execution = runs.run(source=str(copied), cache_dir="/elsewhere", sample_train=77)
    assert execution.last_known_state == CACHED
    assert execution.custom_properties["source"].string_value == str(copied)

    # Other content in the same place, of the same size and time.
    before = path.stat()
    tiny.labels[0] = (tiny.labels[0] + 1) % 10
    path.unlink()
    path.write_bytes(pathlib.Path(tiny.pack(tiny.binary(), "new.tar.gz")).read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert runs.run(source=str(path)).last_known_state == COMPLETE
    assert runs.run(source=str(path), val_fraction=0.2).last_known_state == COMPLETE
    assert runs.run(source=str(path), shards=3).last_known_state == COMPLETE
    assert runs.run(source=str(path), val_fraction=0.2).last_known_state == CACHED


def test_under_tfxs_own_runner_shards_of_a_lost_store_are_not_written_among(tiny):
    runs = Runs(tiny.folder)
    path = tiny.pack(tiny.binary())
    runs.run(source=path, shards=3)
    before = {file: file.read_bytes() for file in runs.files() if file.is_file()}
    assert len(before) == 9
    (tiny.folder / "metadata.db").unlink()
    with pytest.raises(OutputExistsError) as caught:
        runs.run(source=path, shards=2)
    assert caught.value.file == str(tiny.folder / "pipeline/Cifar10ExampleGen/examples/1")
    assert {file: file.read_bytes() for file in runs.files() if file.is_file()} == before


def test_an_attempt_that_was_killed_leaves_nothing_in_the_next(tiny):
    """As in a container that is started again: the same folder, and no driver here."""
    source = tiny.pack(tiny.binary())
    old = tiny.folder / "out" / "Split-train" / "data_tfrecord-00000-of-00009"

    class Again(Executor):
        def Do(self, *arguments: Any) -> None:
            old.parent.mkdir(parents=True)
            old.write_text("half")
            super().Do(*arguments)

    execute(tiny.folder / "out", executor=Again, source=source)
    assert not old.exists()
    assert len(parse(tiny.folder / "out", "train")) == 27


def test_a_failed_run_leaves_nothing_to_be_reused(tiny):
    runs = Runs(tiny.folder)
    path = pathlib.Path(tiny.pack(tiny.binary()))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="truncated"):
        runs.run(source=str(path))
    assert runs.executions[-1].last_known_state == FAILED
    assert not runs.files()
    assert not [a for a in runs.artifacts() if a.state == metadata_store_pb2.Artifact.LIVE]
    path.write_bytes(whole)
    assert runs.run(source=str(path)).last_known_state == COMPLETE


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ({"source": "x", "dataset": "mnist"}, "dataset"),
        ({"source": "sample", "dataset": "cifar100"}, "source"),
        ({"source": "x", "shards": 0}, "shards"),
    ],
)
def test_invalid_arguments(arguments, setting):
    with pytest.raises(SettingError) as caught:
        Cifar10ExampleGen(**arguments)
    assert (caught.value.setting, caught.value.value) == (setting, arguments[setting])
