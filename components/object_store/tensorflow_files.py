"""``minio://`` and ``s3://`` for TensorFlow in Python: files, TFRecords and SavedModels.

Beam's workers of Transform, Evaluator and BulkInferrer read and write models at the addresses of
their artifacts. TensorFlow's operations open files in C++, which knows neither scheme. So a
SavedModel is loaded from a local copy, and saved to a local folder first.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import posixpath
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from tfx.dsl.io import fileio, filesystem
from tfx.utils import io_utils

from stagecraft.components.object_store.filesystem import Stat, served, upload


def install() -> None:
    """Makes TensorFlow support the addresses in this process; a second call changes nothing."""
    from tensorflow.python.lib.io import file_io, tf_record
    from tensorflow.python.ops import gen_lookup_ops
    from tensorflow.python.saved_model import load, loader_impl, save

    if isinstance(file_io._pywrap_file_io, _Files):
        return
    file_io._pywrap_file_io = _Files(file_io._pywrap_file_io, _Ours)
    records = tf_record._pywrap_record_io
    tf_record._pywrap_record_io = _Files(records, _Records(records))
    gen_lookup_ops.initialize_table_from_text_file_v2 = _from_local_file(
        gen_lookup_ops.initialize_table_from_text_file_v2
    )
    load.load_partial = _with_local_model(load.load_partial)
    loader = loader_impl.SavedModelLoader
    loader.__init__ = _with_local_model(loader.__init__, position=1)
    save.save_and_return_nodes = _saved_locally(save.save_and_return_nodes)


class _Files:
    """TensorFlow's functions on files, in C++, for other addresses than those of the stores."""

    def __init__(self, native: Any, ours: Any) -> None:
        self._native, self._ours = native, ours

    def __getattr__(self, name: str) -> Any:
        native = getattr(self._native, name)
        ours = getattr(self._ours, name, None)
        if ours is None:
            return native

        def call(*args: Any) -> Any:
            values = [os.fsdecode(each) if isinstance(each, bytes) else each for each in args]
            if not any(isinstance(each, str) and served(each) for each in values):
                return native(*args)
            try:
                return ours(*values)
            except filesystem.NotFoundError as error:
                from tensorflow import errors

                raise errors.NotFoundError(None, None, str(error)) from error

        return call


class _Ours:
    """The same functions, under TensorFlow's names, for the addresses of the stores."""

    DeleteFile = staticmethod(fileio.remove)
    DeleteRecursively = staticmethod(fileio.rmtree)
    GetMatchingFiles = staticmethod(fileio.glob)
    IsDirectory = staticmethod(fileio.isdir)
    GetChildren = staticmethod(fileio.listdir)
    Stat: Callable[[str], Stat] = staticmethod(fileio.stat)
    CreateDir = staticmethod(fileio.makedirs)
    RecursivelyCreateDir = staticmethod(fileio.makedirs)

    @staticmethod
    def HasAtomicMove(path: str) -> bool:
        return False

    @staticmethod
    def FileExists(path: str) -> None:
        if not fileio.exists(path):
            raise filesystem.NotFoundError(path)

    @staticmethod
    def CopyFile(source: str, target: str, overwrite: bool) -> None:
        fileio.copy(source, target, overwrite=overwrite)

    @staticmethod
    def RenameFile(source: str, target: str, overwrite: bool) -> None:
        fileio.rename(source, target, overwrite=overwrite)

    @staticmethod
    def BufferedInputStream(path: str, size: int) -> Any:
        return fileio.open(path, "rb")

    @staticmethod
    def WritableFile(path: str, mode: str) -> Any:
        return _Writer(fileio.open(path, mode.strip("b+") + "b"))


class _Records:
    """TensorFlow's functions on TFRecords, for the addresses of the stores."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def RecordIterator(self, path: str, compression: str) -> Any:
        with _local_file(path) as local:
            return self._native.RecordIterator(local, compression)  # opens the file


class _Writer:
    """A file of the store with the methods of TensorFlow's ``WritableFile``."""

    def __init__(self, stream: io.BufferedWriter) -> None:
        self.append, self.tell, self.close = stream.write, stream.tell, stream.close

    def flush(self) -> None:
        """Does nothing: closing the file completes the write."""


@contextlib.contextmanager
def _local_file(address: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="stagecraft-file-") as folder:
        local = posixpath.join(folder, "file")
        fileio.copy(address, local)
        yield local


def _from_local_file(initialize: Callable[..., Any]) -> Callable[..., Any]:
    """The initialization of a table from the lines of a file at any address.

    Transform initializes a table with a vocabulary before it saves its model.
    """

    @functools.wraps(initialize)
    def initialized(table: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
        read = getattr(file, "numpy", None)  # a tensor with a value
        address = os.fsdecode(read()) if read is not None else ""
        if not served(address):
            return initialize(table, file, *args, **kwargs)
        with _local_file(address) as local:
            return initialize(table, local, *args, **kwargs)

    return initialized


def _with_local_model(load: Callable[..., Any], position: int = 0) -> Callable[..., Any]:
    """A function that loads the SavedModel in its argument at ``position``, for all addresses."""

    @functools.wraps(load)
    def loaded(*args: Any, **kwargs: Any) -> Any:
        address = os.fspath(kwargs.get("export_dir", args[position] if args[position:] else ""))
        if not served(address):
            return load(*args, **kwargs)
        # The variables are read when the model is loaded, and tables when a session starts.
        local = _copy(address)
        if "export_dir" in kwargs:
            return load(*args, **{**kwargs, "export_dir": local})
        return load(*args[:position], local, *args[position + 1 :], **kwargs)

    return loaded


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stagecraft-models-")


def _copy(address: str) -> str:
    """A local copy of a SavedModel, for the life of this process."""
    local = tempfile.mkdtemp(dir=_scratch().name)
    io_utils.copy_dir(address, local)
    return local


def _saved_locally(save: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(save)
    def saved(obj: Any, export_dir: str, *args: Any, **kwargs: Any) -> Any:
        with _uploaded(os.fspath(export_dir)) as folder:
            return save(obj, folder, *args, **kwargs)

    return saved


@contextlib.contextmanager
def _uploaded(address: str) -> Iterator[str]:
    """A folder whose content goes to the address at the end of the block."""
    if not served(address):
        yield address
        return
    with tempfile.TemporaryDirectory(prefix="stagecraft-models-") as folder:
        yield folder
        for parent, _, names in os.walk(folder):
            for name in names:
                path = posixpath.join(parent, name)
                upload(path, address + path.removeprefix(folder))
