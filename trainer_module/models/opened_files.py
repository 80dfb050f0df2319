"""The files that a user's function reads while it builds a model.

A model that begins with weights out of a file is another model as soon as the file is another one.
So what the function opens is part of what the model is, as its code is.

Seen is what goes through Python's ``open`` and ``os.open`` (NumPy, pickle, zipfile, Keras's
``.keras`` files), through ``h5py``, and through TensorFlow's ``tf.io.gfile``, ``tf.io.read_file``
and readers of checkpoints. Not seen is what other libraries open in native code, what another
process opens, what lies behind an address, and what a module opened as it was imported, if it was
imported before.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import pathlib
import stat
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

_INSTALLED = {"site-packages", "dist-packages", "__pycache__"}
_STDLIB = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/lib", "/usr/lib", "/usr/share/zoneinfo")
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth")
"""Code has a fingerprint of its own."""

_lock = threading.Lock()
_recordings: list[Recording] = []
"""Those that go on. An audit hook cannot be taken away, so there is one for all of them."""


class Recording:
    """What was opened while it went on."""

    def __init__(self) -> None:
        self._read: dict[str, None] = {}  # in order, each once
        self._written: set[str] = set()

    def opened(self, path: Any, *, reads: bool, writes: bool) -> None:
        """Takes note of a file, by whatever names one; a descriptor or an address names none."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        name = os.fsdecode(path).removeprefix("file://")
        if not name or "://" in name:
            return
        absolute = os.path.abspath(name)
        if reads:
            self._read[absolute] = None
        if writes:
            self._written.add(absolute)

    def files(self) -> list[str]:
        """Absolute paths, sorted, of the files that were read, and are there to be read again.

        Left out are code, files of Python's installation and of the system, and what the build
        itself wrote into the folder for temporary files.
        """
        temporary = os.path.realpath(tempfile.gettempdir())
        return sorted(
            path
            for path in list(self._read)
            if _counts(path) and not (path in self._written and _is_below(path, temporary))
        )


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Records what any thread of this process opens inside of the block."""
    _listen()
    found = Recording()
    with _lock:
        if not _recordings:
            _hook_native_readers()
        _recordings.append(found)
    try:
        yield found
    finally:
        with _lock:
            # By identity: there may be several at once.
            _recordings[:] = [each for each in _recordings if each is not found]
            if not _recordings:
                _unhook_native_readers()


def _tell(path: Any, *, reads: bool = True, writes: bool = False) -> None:
    for each in list(_recordings):
        # What fails here must not fail whoever opens a file.
        with contextlib.suppress(OSError, ValueError):
            each.opened(path, reads=reads, writes=writes)


@functools.cache
def _listen() -> None:
    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if _recordings and event == "open":
            path, mode, flags = arguments
            if mode is None:  # os.open
                reads = flags & os.O_ACCMODE != os.O_WRONLY
                writes = flags & os.O_ACCMODE != os.O_RDONLY
                _tell(path, reads=reads, writes=writes)
            else:
                _tell(path, **_access(mode))

    sys.addaudithook(hear)


def _access(mode: str) -> dict[str, bool]:
    writes = any(letter in mode for letter in "wax")
    return {"reads": not writes, "writes": writes}


# --- readers in native code, which Python hears nothing of ---

_originals: list[tuple[Any, str, Any]] = []


def _hook_native_readers() -> None:
    import tensorflow as tf
    from tensorflow.python.lib.io import file_io
    from tensorflow.python.training import py_checkpoint_reader

    with contextlib.suppress(ImportError):
        import h5py

        _hook(h5py.File, "__init__", _h5)
    _hook(file_io.FileIO, "__init__", _file_io)
    _hook(tf.io, "read_file", lambda filename, *_, **__: _tell(_plain(filename)))
    _hook(py_checkpoint_reader, "NewCheckpointReader", _checkpoint)


def _hook(owner: Any, name: str, told: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(TypeError):  # of wrong arguments the original complains
            told(*args, **kwargs)
        return original(*args, **kwargs)

    _originals.append((owner, name, original))
    setattr(owner, name, hooked)


def _unhook_native_readers() -> None:
    while _originals:
        setattr(*_originals.pop())


def _h5(_: Any, name: Any, mode: str = "r", *__: Any, **___: Any) -> None:
    _tell(name, **_access(mode if mode in ("w", "w-", "x") else "r"))


def _file_io(_: Any, name: Any, mode: str, *__: Any, **___: Any) -> None:
    _tell(_plain(name), **_access(mode))


def _checkpoint(filepattern: Any) -> None:
    for path in glob.glob(f"{glob.escape(os.fsdecode(_plain(filepattern)))}.*"):
        if path.endswith(".index") or ".data-" in path:
            _tell(path)


def _plain(name: Any) -> Any:
    """A name out of a tensor or a NumPy string."""
    value = name.numpy() if hasattr(name, "numpy") else name
    return value if isinstance(value, (str, bytes, os.PathLike)) else str(value)


# --- which files count ---


def _counts(path: str) -> bool:
    real = os.path.realpath(path)
    parts = set(pathlib.PurePath(path).parts) | set(pathlib.PurePath(real).parts)
    if parts & _INSTALLED or real.endswith(_CODE):
        return False
    if any(_is_below(real, folder) for folder in (*_STDLIB, *_SYSTEM)):
        return False
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:  # gone: it was a temporary one
        return False


def _is_below(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(f"{folder}{os.sep}")
