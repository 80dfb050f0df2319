"""TensorFlow reads and writes minio:// addresses in Python, and loads and saves models there."""

import pathlib

import pytest
import tensorflow as tf

from stagecraft.components.object_store import filesystem, tensorflow_files


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The support, during the test."""
    from tensorflow.python.lib.io import file_io, tf_record
    from tensorflow.python.ops import gen_lookup_ops
    from tensorflow.python.saved_model import load, loader_impl, save

    for owner, name in (
        (file_io, "_pywrap_file_io"),
        (tf_record, "_pywrap_record_io"),
        (gen_lookup_ops, "initialize_table_from_text_file_v2"),
        (load, "load_partial"),
        (loader_impl.SavedModelLoader, "__init__"),
        (save, "save_and_return_nodes"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    tensorflow_files.install()


@pytest.fixture(params=["server", "folder"])
def root(request: pytest.FixtureRequest) -> str:
    """An address on an S3 server, and in a folder that stands for one."""
    if request.param == "server":
        return f"minio://{request.getfixturevalue('bucket')}/data"
    request.getfixturevalue("folder_store")
    return "minio://bucket/data"


class Lookup(tf.Module):
    """A model with a variable and an asset: the index of a word, times the variable."""

    def __init__(self, words: pathlib.Path) -> None:
        super().__init__()
        self.factor = tf.Variable(3, dtype=tf.int64)
        initializer = tf.lookup.TextFileInitializer(
            str(words),
            *(tf.string, tf.lookup.TextFileIndex.WHOLE_LINE),
            *(tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER),
        )
        self.table = tf.lookup.StaticHashTable(initializer, -1)

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def __call__(self, word: tf.Tensor) -> tf.Tensor:
        return self.factor * self.table.lookup(word)


@pytest.fixture
def model(tmp_path: pathlib.Path) -> Lookup:
    words = tmp_path / "words.txt"
    words.write_text("a\nb\nc\n")
    return Lookup(words)


def test_a_model_is_saved_and_loaded(root: str, model: Lookup) -> None:
    tf.saved_model.save(model, f"{root}/model")
    assert tf.io.gfile.exists(f"{root}/model/saved_model.pb")
    assert tf.saved_model.contains_saved_model(f"{root}/model")
    loaded = tf.saved_model.load(f"{root}/model")
    assert loaded(tf.constant("c")) == 6


def test_a_session_loads_a_model(root: str, model: Lookup) -> None:
    """As tfx_bsl's RunInference does."""
    tf.saved_model.save(model, f"{root}/model", signatures=model.__call__)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.loader.load(session, ["serve"], f"{root}/model")
        graph = session.graph
        output = graph.get_tensor_by_name("StatefulPartitionedCall:0")
        assert session.run(output, {"serving_default_word:0": b"b"}) == 3


def test_local_models_are_not_copied(tmp_path: pathlib.Path, model: Lookup) -> None:
    tf.saved_model.save(model, tmp_path / "model")
    assert tf.saved_model.load(tmp_path / "model")(tf.constant("b")) == 3
    assert tf.saved_model.load(export_dir=str(tmp_path / "model"))(tf.constant("b")) == 3


def test_files(root: str, tmp_path: pathlib.Path) -> None:
    gfile = tf.io.gfile
    with gfile.GFile(f"{root}/folder/a.txt", "w") as file:
        file.write("one\ntwo\n")
    with gfile.GFile(f"{root}/folder/a.txt") as file:
        assert file.size() == 8 and file.readline() == "one\n" and file.read() == "two\n"
        file.seek(4)
        assert file.tell() == 4 and file.read(2) == "tw"
    gfile.copy(f"{root}/folder/a.txt", str(tmp_path / "a.txt"))
    gfile.copy(str(tmp_path / "a.txt"), f"{root}/folder/below/b.txt")
    gfile.rename(f"{root}/folder/below/b.txt", f"{root}/folder/below/c.txt")
    assert gfile.glob(f"{root}/folder/*.txt") == [f"{root}/folder/a.txt"]
    assert sorted(name.rstrip("/") for name in gfile.listdir(f"{root}/folder")) == [
        "a.txt",
        "below",
    ]
    found = [(folder, names) for folder, _, names in gfile.walk(f"{root}/folder")]
    assert found == [(f"{root}/folder", ["a.txt"]), (f"{root}/folder/below", ["c.txt"])]
    gfile.makedirs(f"{root}/empty")
    gfile.remove(f"{root}/folder/a.txt")
    gfile.rmtree(f"{root}/folder")
    assert not gfile.exists(f"{root}/folder") and not gfile.isdir(f"{root}/folder")
    with pytest.raises(tf.errors.NotFoundError):
        gfile.GFile(f"{root}/no-file").read()


def test_records(root: str, tmp_path: pathlib.Path) -> None:
    """As TensorFlow Model Analysis reads its results."""
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        writer.write(b"one")
        writer.write(b"two")
    filesystem.upload(str(tmp_path / "records"), f"{root}/records")
    for path in (f"{root}/records", str(tmp_path / "records")):
        assert list(tf.compat.v1.io.tf_record_iterator(path)) == [b"one", b"two"]


def test_large_files_are_uploaded_in_pieces(root: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)) * 10_000)
    filesystem.upload(str(tmp_path / "file"), f"{root}/file")
    assert filesystem.read(f"{root}/file") == (tmp_path / "file").read_bytes()


def test_a_vocabulary_is_made_and_applied(folder_store: pathlib.Path) -> None:
    """As Transform does, with its analysis, its models and its output in the store."""
    import apache_beam as beam
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

    from stagecraft.components.object_store import beam_filesystem
    from stagecraft.pipeline.beam import in_process

    assert beam_filesystem
    root = "minio://bucket/data"
    spec = {"word": tf.io.FixedLenFeature([], tf.string)}
    schema = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(spec))
    data = [{"word": word} for word in ("b", "a", "b")]

    def preprocess(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        found = tft.compute_and_apply_vocabulary(inputs["word"], vocab_filename="words")
        return {"index": found}

    with in_process(), beam.Pipeline() as pipeline, tft_beam.Context(temp_dir=f"{root}/temp"):
        (_, function) = (pipeline | beam.Create(data), schema) | (
            tft_beam.AnalyzeAndTransformDataset(preprocess)
        )
        _ = function | tft_beam.WriteTransformFn(f"{root}/out")
    output = tft.TFTransformOutput(f"{root}/out")
    assert output.vocabulary_by_name("words") == [b"b", b"a"]
    index = output.transform_features_layer()({"word": tf.constant(["a", "b"])})["index"]
    assert index.numpy().tolist() == [1, 0]
