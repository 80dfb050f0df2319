"""Records the files that a user's function reads while it builds a model: they identify the model.

Recorded is every file opened by Python's ``open`` and ``os.open``, by ``h5py``, and by TensorFlow's
``tf.io.gfile``, ``tf.io.read_file`` and checkpoint readers. Not recorded are files that other
libraries open in native code, files of other processes, network addresses, and earlier imports.
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
"""Code has its own fingerprint."""

_lock = threading.Lock()
_recordings: list[Recording] = []
"""The active recordings. An audit hook cannot be removed, so all of them share one."""


class Recording:
    """The files opened while it is active."""

    def __init__(self) -> None:
        self._read: dict[str, None] = {}  # an ordered set
        self._written: set[str] = set()

    def opened(self, path: Any, *, reads: bool, writes: bool) -> None:
        """Adds a file; ignores descriptors and addresses."""
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
        """Absolute paths, sorted, of the files that were read and still exist."""
        temporary = os.path.realpath(tempfile.gettempdir())
        return sorted(
            path
            for path in list(self._read)
            if _counts(path) and not (path in self._written and _is_below(path, temporary))
        )


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Records the files that any thread of this process opens in the block."""
    _listen()
    new = Recording()
    with _lock:
        if not _recordings:
            _hook_native_readers()
        _recordings.append(new)
    try:
        yield new
    finally:
        with _lock:
            # By identity: several may be active.
            _recordings[:] = [each for each in _recordings if each is not new]
            if not _recordings:
                _unhook_native_readers()


def _record(path: Any, *, reads: bool = True, writes: bool = False) -> None:
    for each in list(_recordings):
        # An error here must not affect the code that opens the file.
        with contextlib.suppress(OSError, ValueError):
            each.opened(path, reads=reads, writes=writes)


@functools.cache
def _listen() -> None:
    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if _recordings and event == "open":
            path, mode, flags = arguments
            if mode is None:  # os.open
                reads = flags & os.O_ACCMODE != os.O_WRONLY
                writes = flags & os.O_ACCMODE != os.O_RDONLY
                _record(path, reads=reads, writes=writes)
            else:
                _record(path, **_access(mode))

    sys.addaudithook(audit)


def _access(mode: str) -> dict[str, bool]:
    writes = any(letter in mode for letter in "wax")
    return {"reads": not writes, "writes": writes}


_originals: list[tuple[Any, str, Any]] = []
"""Replaced functions: readers in native code, which raise no audit event."""


def _hook_native_readers() -> None:
    import tensorflow as tf
    from tensorflow.python.lib.io import file_io
    from tensorflow.python.training import py_checkpoint_reader

    with contextlib.suppress(ImportError):
        import h5py

        _hook(h5py.File, "__init__", _h5)
    _hook(file_io.FileIO, "__init__", _file_io)
    _hook(tf.io, "read_file", lambda filename, *_, **__: _record(_plain(filename)))
    _hook(py_checkpoint_reader, "NewCheckpointReader", _checkpoint)


def _hook(owner: Any, name: str, record: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(TypeError):  # the original reports wrong arguments
            record(*args, **kwargs)
        return original(*args, **kwargs)

    _originals.append((owner, name, original))
    setattr(owner, name, hooked)


def _unhook_native_readers() -> None:
    while _originals:
        setattr(*_originals.pop())


def _h5(_: Any, name: Any, mode: str = "r", *__: Any, **___: Any) -> None:
    _record(name, **_access(mode if mode in ("w", "w-", "x") else "r"))


def _file_io(_: Any, name: Any, mode: str, *__: Any, **___: Any) -> None:
    _record(_plain(name), **_access(mode))


def _checkpoint(filepattern: Any) -> None:
    for path in glob.glob(f"{glob.escape(os.fsdecode(_plain(filepattern)))}.*"):
        if path.endswith(".index") or ".data-" in path:
            _record(path)


def _plain(name: Any) -> Any:
    """The name in a tensor or a NumPy string."""
    value = name.numpy() if hasattr(name, "numpy") else name
    return value if isinstance(value, (str, bytes, os.PathLike)) else str(value)


def _counts(path: str) -> bool:
    real = os.path.realpath(path)
    parts = set(pathlib.PurePath(path).parts) | set(pathlib.PurePath(real).parts)
    if parts & _INSTALLED or real.endswith(_CODE):
        return False
    if any(_is_below(real, folder) for folder in (*_STDLIB, *_SYSTEM)):
        return False
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:  # gone: a temporary file
        return False


def _is_below(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(f"{folder}{os.sep}")
