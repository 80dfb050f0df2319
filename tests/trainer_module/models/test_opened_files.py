import os
import pathlib
import sys
import tempfile
from collections.abc import Callable

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from model_arguments import build, files_read

from stagecraft.trainer_module.models import build_model, opened_files

Read = Callable[[pathlib.Path], object]


def _keras_model() -> keras.Model:
    return keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])


def _descriptor(path: pathlib.Path) -> None:
    os.close(os.open(path, os.O_RDONLY))


READERS: dict[str, tuple[str, Read, Read]] = {
    "open": ("w.bin", lambda p: p.write_bytes(b"1"), lambda p: open(p, "rb").close()),
    "pathlib": ("w.txt", lambda p: p.write_text("1"), pathlib.Path.read_text),
    "os.open": ("w.bin", lambda p: p.write_bytes(b"1"), _descriptor),
    "np.load": ("w.npz", lambda p: np.savez(p, w=[1]), np.load),
    "np.fromfile": ("w.raw", lambda p: p.write_bytes(bytes(8)), np.fromfile),
    "np.memmap": ("w.raw", lambda p: p.write_bytes(bytes(8)), np.memmap),
    "h5py": ("w.h5", lambda p: h5py.File(p, "w").close(), lambda p: h5py.File(p).close()),
    "gfile": ("w", lambda p: p.write_text("1"), lambda p: tf.io.gfile.GFile(str(p)).read()),
    "read_file": ("w", lambda p: p.write_text("1"), lambda p: tf.io.read_file(str(p))),
    "load_weights": (
        "w.weights.h5",
        lambda p: _keras_model().save_weights(p),
        lambda p: _keras_model().load_weights(p),
    ),
    "load_model": ("w.keras", lambda p: _keras_model().save(p), keras.models.load_model),
}


@pytest.mark.parametrize("how", READERS)
def test_what_is_read_is_seen(how, tmp_path):
    name, write, read = READERS[how]
    write(tmp_path / name)
    with opened_files.recording() as recorded:
        read(tmp_path / name)
    assert recorded.files() == [str(tmp_path / name)]
    read(tmp_path / name)
    with opened_files.recording() as recorded:
        pass
    assert recorded.files() == []


def test_a_checkpoint_is_all_of_its_files(tmp_path):
    prefix = tf.train.Checkpoint(w=tf.Variable([1.0])).write(str(tmp_path / "c"))
    expected = [f"{prefix}.data-00000-of-00001", f"{prefix}.index"]
    for read in (
        tf.train.load_checkpoint,
        lambda path: tf.train.Checkpoint(w=tf.Variable([2.0])).read(path).assert_consumed(),
    ):
        with opened_files.recording() as recorded:
            read(prefix)
        assert recorded.files() == expected


def test_a_saved_model_is_its_graph_and_variables(tmp_path):
    module = tf.Module()
    module.w = tf.Variable([1.0])
    tf.saved_model.save(module, str(tmp_path))
    with opened_files.recording() as recorded:
        tf.saved_model.load(str(tmp_path))
    found = {os.path.relpath(path, tmp_path) for path in recorded.files()}
    wanted = {"saved_model.pb", "variables/variables.index"}
    assert found >= {*wanted, "variables/variables.data-00000-of-00001"}


def test_what_does_not_count(tmp_path, monkeypatch):
    code = tmp_path / "some_code.py"
    code.write_text("")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    kept = tmp_path / "kept"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with opened_files.recording() as recorded:
        open("/proc/self/status").close()
        open("/dev/null").close()
        code.read_text()
        os.close(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))
        pathlib.Path(keras.__file__).read_bytes()
        pathlib.Path(os.__file__).read_bytes()
        with tempfile.NamedTemporaryFile("w+") as gone:
            pathlib.Path(gone.name).read_text()
        kept.write_text("made here")
        kept.read_text()
        (tmp_path / "log").write_text("only written")
        with pytest.raises(FileNotFoundError):
            (tmp_path / "not there").read_text()
        os.fdopen(os.dup(0)).close()
    assert recorded.files() == []


def test_a_reader_works_as_before_and_is_left_as_it_was(tmp_path):
    (tmp_path / "x").write_text("1")
    before = (h5py.File.__init__, tf.io.read_file)
    with opened_files.recording(), opened_files.recording() as inner:
        assert h5py.File.__init__ is not before[0]
        with pytest.raises(TypeError):
            h5py.File()
        with pytest.raises(FileNotFoundError):
            h5py.File(tmp_path / "not there.h5")
        with pytest.raises(tf.errors.NotFoundError):
            tf.io.read_file("not there")
        assert tf.io.read_file(tf.constant(str(tmp_path / "x"))).numpy() == b"1"
    assert inner.files() == [str(tmp_path / "x")]
    assert (h5py.File.__init__, tf.io.read_file) == before


def test_a_folder_that_is_gone_harms_nobody(tmp_path):
    (tmp_path / "file").write_text("1")
    here, gone = os.getcwd(), tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    try:
        gone.rmdir()
        with opened_files.recording() as recorded:
            descriptor = os.open(tmp_path, os.O_RDONLY)
            os.close(os.open("file", os.O_RDONLY, dir_fd=descriptor))
            os.close(descriptor)
    finally:
        os.chdir(here)
    assert recorded.files() == []


MODEL = """
import functools
import pathlib
import keras

AT_IMPORT = (pathlib.Path(__file__).parent / "import.txt").read_text()

@functools.cache
def kept():
    return (pathlib.Path(__file__).parent / "kept.txt").read_text()

class Late(keras.layers.Layer):
    def build(self, shape):
        (pathlib.Path(__file__).parent / "late.txt").read_text()

    def call(self, inputs):
        return inputs

def model(input_shape, num_classes):
    (pathlib.Path(__file__).parent / f"classes{num_classes}.txt").read_text()
    kept()
    layers = [keras.layers.Flatten(), Late(), keras.layers.Dense(num_classes)]
    return keras.Sequential([keras.Input(input_shape), *layers])

def broken(input_shape, num_classes):
    kept()
    raise ValueError("no weights")
"""


@pytest.fixture
def module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"reading_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODEL)
    for file in ("import", "kept", "late", "classes7", "classes10"):
        (tmp_path / f"{file}.txt").write_text(file)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def _names(files: list[str]) -> list[str]:
    return [pathlib.Path(file).stem for file in files]


def test_all_that_a_function_reads_however_often_it_is_built(module):
    for _ in range(2):  # the second reads less: the module is there, and keeps a file's content
        found = files_read(f"{module}:model", 7)
        assert _names(found) == ["classes7", "import", "kept", "late"]
    found = files_read(f"{module}:model", 10)
    assert _names(found) == ["classes10", "classes7", "import", "kept", "late"]


def test_a_model_that_cannot_be_built_has_read_what_it_has(module):
    assert _names(files_read(f"{module}:broken")) == ["import", "kept"]


def test_a_model_is_built_once_for_all_who_ask(module, monkeypatch):
    built = []
    call = build_model._call
    monkeypatch.setattr(build_model, "_call", lambda *a: (built.append(a), call(*a))[1])
    with build_model.files_shared():
        build(f"{module}:model")
        for _ in range(2):
            assert "late" in _names(files_read(f"{module}:model"))
    assert len(built) == 1
    with build_model.files_shared(builds=False):
        files_read(f"{module}:model", 7)
    assert len(built) == 1
    assert files_read("resnet20") == []
