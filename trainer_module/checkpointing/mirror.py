"""Checkpoints for processes that share no file system: kept in a store too, and brought from there.

What a process does with its own folder of checkpoints, it does to the store as well. A step there
is whole as soon as its ``progress.json`` is, which comes last and goes first. Imports no
TensorFlow.
"""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable, Collection
from typing import Protocol

from stagecraft.trainer_module.checkpointing.atomic_folder import atomic_folder

_COMMIT = "progress.json"


class Store(Protocol):
    """Files by name, as in an object store: each whole or not there."""

    def names(self) -> list[str]:
        """Of all files, relative, with slashes."""

    def read(self, name: str) -> bytes | None:
        """Content; None where there is none."""

    def write(self, name: str, content: bytes) -> None:
        """Makes or replaces a file."""

    def download(self, name: str, path: pathlib.Path) -> None:
        """Copies a file from there; FileNotFoundError if there is none."""

    def upload(self, path: pathlib.Path, name: str) -> None:
        """Copies a file to there."""

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""


class Mirror:
    """A folder of checkpoints, and the store that has them for all."""

    def __init__(
        self,
        root: pathlib.Path,
        store: Store,
        check: Callable[[], object] = lambda: None,
    ):
        """Asks nothing yet.

        Args:
            root: the folder.
            store: has its checkpoints for all.
            check: raises an error if another training writes to the store by now.
        """
        self._root, self._store, self._check = root, store, check

    def steps(self) -> list[int]:
        """The committed steps in the store, oldest first."""
        parts = [name.split("/") for name in self._store.names()]
        return sorted(
            int(each[0])
            for each in parts
            if len(each) == 2 and each[0].isdecimal() and each[1] == _COMMIT
        )

    def fetch(self, step: int) -> None:
        """Brings a step here, unless it is here as it is there; what is not there goes here, too.

        Raises:
            FileNotFoundError: it was dropped meanwhile.
        """
        folder, committed = self._root / str(step), self._store.read(f"{step}/{_COMMIT}")
        if committed is None:
            shutil.rmtree(folder, ignore_errors=True)
            return
        here = folder / _COMMIT
        if here.exists() and here.read_bytes() == committed:
            return
        with atomic_folder(folder) as made:
            for name in self._names(step):
                self._store.download(name, made / name.partition("/")[2])

    def commit(self, step: int) -> None:
        """Brings a step there."""
        self._check()
        self.drop(step)  # of an attempt before
        paths = sorted((self._root / str(step)).iterdir(), key=lambda path: path.name == _COMMIT)
        for path in paths:
            if path.name == _COMMIT:
                self._check()  # the step is there for others from then on
            self._store.upload(path, f"{step}/{path.name}")

    def prune(self, steps: Collection[int]) -> None:
        """Removes all other steps here, which were brought to be read."""
        for entry in self._root.glob("[0-9]*"):
            if entry.name.isdecimal() and int(entry.name) not in steps:
                shutil.rmtree(entry, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Removes there what a crash left half-sent; for the one process that sends."""
        self._check()
        whole = set(self.steps())
        for step in {name.partition("/")[0] for name in self._store.names() if "/" in name}:
            if step.isdecimal() and int(step) not in whole:
                self.drop(int(step))

    def drop(self, step: int) -> None:
        """Removes a step there."""
        for name in sorted(self._names(step), key=lambda name: not name.endswith(_COMMIT)):
            self._store.remove(name)

    def read(self, name: str) -> bytes | None:
        """A small file beside the steps."""
        return self._store.read(name)

    def write(self, name: str, content: bytes) -> None:
        """Replaces a small file beside the steps."""
        self._store.write(name, content)

    def remove(self, name: str) -> None:
        """Removes a small file beside the steps."""
        self._store.remove(name)

    def _names(self, step: int) -> list[str]:
        return [name for name in self._store.names() if name.startswith(f"{step}/")]


_mirrors: dict[pathlib.Path, Mirror] = {}


def use(root: pathlib.Path, store: Store, check: Callable[[], object] = lambda: None) -> None:
    """From now on in this process, the checkpoints in ``root`` are those of the store.

    Args:
        root: the folder.
        store: has its checkpoints for all.
        check: raises an error if another training writes to the store by now.
    """
    _mirrors[root] = Mirror(root, store, check)


def of(root: pathlib.Path) -> Mirror | None:
    """That of a folder; None where the folder is all there is."""
    return _mirrors.get(root)
