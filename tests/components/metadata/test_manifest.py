"""Manifests alone: what they hold, and which damage they show."""

import gzip
import json
import os
import pathlib
import time

import pytest
from damages import RECORDS, WAYS, files, fill
from tfx.types import standard_artifacts

from stagecraft.components.fingerprints import code_fingerprint
from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.manifest import Damage, DamagedArtifactError, File

TYPES = ("Examples", "Model")


@pytest.fixture(params=TYPES)
def artifact(request, tmp_path):
    """An artifact of a type, with its manifest."""
    return described(request.param, tmp_path / "artifact")


def described(kind: str, folder: pathlib.Path):
    made = getattr(standard_artifacts, kind)()
    fill(made, folder)
    manifest.add(made.mlmd_artifact, made.type_name)
    return made


def damage(artifact, **options) -> DamagedArtifactError | None:
    try:
        manifest.check({"key": [artifact]}, **options)
    except DamagedArtifactError as error:
        return error
    return None


def test_files_that_nobody_touched_pass(artifact):
    assert damage(artifact) is None
    assert damage(artifact, thorough=True) is None


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_file_has_a_name(artifact, way, index):
    every = files(artifact.uri)
    path = every[index % len(every)]
    size = path.stat().st_size
    WAYS[way](path)
    error = damage(artifact)
    assert (error.file, error.uri, error.kind) == (str(path), artifact.uri, artifact.type_name)
    [found] = error.damages
    assert found.name == str(path.relative_to(artifact.uri)) == error.record
    assert found.expected.size == size
    if way == "removed":
        assert found.found is None
    else:
        assert found.found.size == path.stat().st_size
        assert found.found.sha256 != found.expected.sha256
    if artifact.type_name == "Examples":
        assert found.expected.records == RECORDS
        if way == "emptied":
            assert found.found.records == 0
        if way == "cut" and not path.name.endswith(".gz"):
            assert found.found.records == RECORDS - 2


@pytest.mark.parametrize("more", range(1, 12))
def test_a_shard_cut_after_the_end_of_a_record(tmp_path, more):
    """TensorFlow reads up to 11 bytes behind the last record as the end of the file."""
    artifact = described("Examples", tmp_path / "artifact")
    path = files(artifact.uri)[0]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // RECORDS * 4 + more])
    [found] = damage(artifact).damages
    assert (found.expected.records, found.found.records) == (RECORDS, 4)


def test_a_further_shard_is_no_part_of_examples(tmp_path):
    artifact = described("Examples", tmp_path / "artifact")
    shard = pathlib.Path(artifact.uri, "Split-train", "data-00002-of-00003")
    shard.write_bytes(files(artifact.uri)[0].read_bytes())
    [found] = damage(artifact).damages
    assert (found.name, found.expected) == (f"Split-train/{shard.name}", None)
    shard.rename(shard.with_name(".hidden"))  # which no reader matches
    assert damage(artifact) is None


def test_a_folder_that_is_gone(artifact, tmp_path):
    os.rename(artifact.uri, tmp_path / "elsewhere")
    assert len(damage(artifact).damages) == (4 if artifact.type_name == "Examples" else 2)


def test_an_artifact_without_a_manifest_passes(artifact):
    """Such as one of an earlier release, or an imported one."""
    artifact.set_string_custom_property(manifest.PROPERTY, "")
    files(artifact.uri)[0].unlink()
    assert damage(artifact) is None


MAIN = {
    "Model": "Format-Serving/saved_model.pb",
    "TransformGraph": "transform_fn/saved_model.pb",
    "ExampleStatistics": "Split-train/FeatureStats.pb",
    "ExampleAnomalies": "Split-train/SchemaDiff.pb",
    "Schema": "schema.pbtxt",
}


@pytest.mark.parametrize("kind", MAIN)
def test_an_empty_main_file_has_a_name_without_a_manifest(tmp_path, kind):
    artifact = getattr(standard_artifacts, kind)()
    artifact.uri = str(tmp_path)
    path = tmp_path / MAIN[kind]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("content")
    (path.parent / "other").touch()
    assert damage(artifact) is None
    path.write_text("")
    error = damage(artifact)
    assert (error.file, error.kind) == (str(path), kind)


def many_shards(folder: pathlib.Path):
    artifact = standard_artifacts.Examples()
    artifact.uri, artifact.split_names = str(folder), '["train"]'
    (folder / "Split-train").mkdir(parents=True)
    for number in range(50):
        (folder / "Split-train" / f"data-{number:05d}").write_bytes(b"")
    manifest.add(artifact.mlmd_artifact, artifact.type_name)
    return artifact


def test_a_long_manifest_is_a_file(tmp_path):
    """TFX logs properties, and Kubeflow passes them as arguments."""
    artifact = many_shards(tmp_path / "artifact")
    assert len(artifact.get_string_custom_property(manifest.PROPERTY)) == 64
    assert damage(artifact) is None
    (tmp_path / "artifact" / "Split-train" / "data-00031").unlink()
    assert [each.name for each in damage(artifact).damages] == ["Split-train/data-00031"]


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_manifest_is_damage(tmp_path, way):
    artifact = many_shards(tmp_path / "artifact")
    WAYS[way](tmp_path / "artifact" / manifest.FILE)
    assert [each.name for each in damage(artifact).damages] == [manifest.FILE]


def test_an_artifact_that_is_a_file(tmp_path):
    artifact = standard_artifacts.String()
    artifact.uri = str(tmp_path / "value")
    (tmp_path / "value").write_text("text")
    manifest.add(artifact.mlmd_artifact, artifact.type_name)
    assert damage(artifact) is None
    (tmp_path / "value").write_text("test")
    assert damage(artifact).file == artifact.uri


def test_a_split_without_the_examples_that_were_counted(tmp_path):
    artifact = standard_artifacts.Examples()
    fill(artifact, tmp_path / "artifact")
    artifact.set_int_custom_property("count_train", 2 * RECORDS)
    artifact.set_int_custom_property("count_eval", 2 * RECORDS + 1)
    with pytest.raises(DamagedArtifactError) as caught:
        manifest.add(artifact.mlmd_artifact, artifact.type_name)
    [found] = caught.value.damages
    assert found.name == "Split-eval"
    assert (found.expected.records, found.found.records) == (2 * RECORDS + 1, 2 * RECORDS)


def test_a_file_that_changes_between_writer_and_publication(artifact):
    """The Trainer describes its model; the launcher compares it when it publishes the model."""
    manifest.add(artifact.mlmd_artifact, artifact.type_name)
    WAYS["one bit"](files(artifact.uri)[0])
    with pytest.raises(DamagedArtifactError):
        manifest.add(artifact.mlmd_artifact, artifact.type_name)


def test_other_files_than_records_have_no_count(tmp_path):
    artifact = standard_artifacts.Examples()
    artifact.uri, artifact.split_names = str(tmp_path), '["train"]'
    (tmp_path / "Split-train").mkdir()
    (tmp_path / "Split-train" / "data.parquet").write_bytes(b"PAR1" * 20)
    (tmp_path / "Split-train" / "data.gz").write_bytes(gzip.compress(b"PAR1" * 20))
    manifest.add(artifact.mlmd_artifact, artifact.type_name)
    held = json.loads(artifact.get_string_custom_property(manifest.PROPERTY))
    assert [records for _, _, records in held.values()] == [None, None]


def test_large_artifacts_are_read_again_only_where_they_changed(artifact, monkeypatch):
    monkeypatch.setattr(manifest, "_READ_AGAIN", 0)
    artifact.mlmd_artifact.create_time_since_epoch = time.time_ns() // 10**6 + 1
    path = files(artifact.uri)[0]
    WAYS["one bit"](path)  # as of a disk: no time tells
    assert damage(artifact) is None
    assert damage(artifact, thorough=True).file == str(path)
    os.utime(path, (time.time() + 2, time.time() + 2))
    assert damage(artifact).file == str(path)


def test_a_process_reads_an_unchanged_file_once(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("content")
    digest = code_fingerprint.file_digest(str(path))
    later = time.time_ns() + 10**9
    monkeypatch.setattr(code_fingerprint.time, "time_ns", lambda: later)
    assert code_fingerprint.file_digest(str(path)) == digest
    opened = []
    monkeypatch.setattr(code_fingerprint, "_opened", lambda path: opened.append(path) or path)
    assert code_fingerprint.file_digest(str(path)) == digest
    assert opened == []
    monkeypatch.undo()
    WAYS["one bit"](path)
    assert code_fingerprint.file_digest(str(path)) != digest


def test_in_an_object_store(tmp_path, folder_store, monkeypatch):
    artifact = standard_artifacts.Model()
    fill(artifact, folder_store / "minio" / "bucket" / "model")
    artifact.uri = "minio://bucket/model"
    manifest.add(artifact.mlmd_artifact, artifact.type_name)
    assert damage(artifact) is None
    path = folder_store / "minio" / "bucket" / "model" / "saved.pb"
    WAYS["one bit"](path)
    assert damage(artifact).file == "minio://bucket/model/saved.pb"
    monkeypatch.setattr(manifest, "_READ_REMOTE", 0)  # then sizes alone
    assert damage(artifact) is None
    WAYS["cut"](path)
    assert damage(artifact).file == "minio://bucket/model/saved.pb"


WHOLE, LESS = File(565_200, "0" * 64, 180), File(376_800, "1" * 64, 120)
DAMAGES = {
    "missing": Damage("Split-train/data-00001", WHOLE, None),
    "cut": Damage("Split-train/data-00001", WHOLE, LESS),
    "changed": Damage("Split-train/data-00001", WHOLE, WHOLE._replace(sha256="2" * 64)),
    "additional": Damage("Split-train/data-00002", None, WHOLE),
    "empty": Damage("saved_model.pb", File(0), File(0)),
    "list": Damage(manifest.FILE, File(0), None),
    "value": Damage("", File(10), File(8)),
}


SAID = {
    "missing": "expected 565,200 bytes with 180 records",
    "cut": "has 376,800 bytes with 120 records; expected 565,200",
    "changed": "SHA-256 222222222222",
    "additional": "was added",
    "empty": "is empty",
    "list": "list of the artifact's files",
    "value": "has 8 bytes; expected 10",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged(name):
    again = "Make it again with --from CsvExampleGen."
    others = [DAMAGES["missing"]] * (name == "cut")
    said = str(DamagedArtifactError("/out/1", "Examples", [DAMAGES[name], *others], again))
    assert DAMAGES[name].path("/out/1") in said and SAID[name] in said and again in said
    assert ("1 more" in said) == (name == "cut")
