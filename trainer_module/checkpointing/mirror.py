"""Mirrors a folder of checkpoints in a store, for processes that share no file system.

A process repeats in the store what it does in its own folder. A step in the store is complete if
``progress.json`` exists, which is written last and removed first. Imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Collection
from typing import Protocol

from stagecraft.trainer_module.checkpointing.atomic_folder import atomic_folder

_COMMIT = "progress.json"


class Store(Protocol):
    """Files by name, as in an object store: a file appears whole."""

    def names(self) -> list[str]:
        """Relative names of all files, with slashes."""

    def read(self, name: str) -> bytes | None:
        """The content; None if there is no such file."""

    def write(self, name: str, content: bytes) -> None:
        """Creates or replaces a file."""

    def download(self, name: str, path: pathlib.Path) -> None:
        """Copies a file to ``path``; raises FileNotFoundError if there is none."""

    def upload(self, path: pathlib.Path, name: str) -> None:
        """Copies a local file to the store."""

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""


@dataclasses.dataclass(eq=False)
class Mirror:
    """A folder of checkpoints and the store that holds them for all processes."""

    root: pathlib.Path
    store: Store
    """Holds the checkpoints for all processes."""
    check: Callable[[], object] = lambda: None
    """Raises an error if another training has taken over the store."""

    def steps(self) -> list[int]:
        """The committed steps in the store, oldest first."""
        parts = [name.split("/") for name in self.store.names()]
        return sorted(
            int(each[0])
            for each in parts
            if len(each) == 2 and each[0].isdecimal() and each[1] == _COMMIT
        )

    def fetch(self, step: int) -> None:
        """Downloads a step unless it is up to date; removes it here if the store has none."""
        folder, committed = self.root / str(step), self.store.read(f"{step}/{_COMMIT}")
        if committed is None:
            shutil.rmtree(folder, ignore_errors=True)
            return
        local = folder / _COMMIT
        if local.exists() and local.read_bytes() == committed:
            return
        with atomic_folder(folder) as fresh:
            for name in self._names(step):
                self.store.download(name, fresh / name.partition("/")[2])

    def set_aside(self, step: int, folder: str) -> None:
        """Moves a fetched step below a folder of the store."""
        self.check()
        for path in sorted((self.root / str(step)).iterdir()):
            self.store.upload(path, f"{folder}/{step}/{path.name}")
        self.drop(step)

    def commit(self, step: int) -> None:
        """Uploads a step."""
        self.check()
        self.drop(step)  # of an earlier attempt
        paths = sorted((self.root / str(step)).iterdir(), key=lambda path: path.name == _COMMIT)
        for path in paths:
            if path.name == _COMMIT:
                self.check()  # from here on, others see the step
            self.store.upload(path, f"{step}/{path.name}")

    def prune(self, steps: Collection[int]) -> None:
        """Removes all other steps from the folder, where :meth:`fetch` put them."""
        for entry in self.root.glob("[0-9]*"):
            if entry.name.isdecimal() and int(entry.name) not in steps:
                shutil.rmtree(entry, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Removes incomplete uploads; call it only in the process that uploads."""
        self.check()
        whole = set(self.steps())
        for step in {name.partition("/")[0] for name in self.store.names() if "/" in name}:
            if step.isdecimal() and int(step) not in whole:
                self.drop(int(step))

    def drop(self, step: int) -> None:
        """Removes a step from the store."""
        for name in sorted(self._names(step), key=lambda name: not name.endswith(_COMMIT)):
            self.store.remove(name)

    def _names(self, step: int) -> list[str]:
        return [name for name in self.store.names() if name.startswith(f"{step}/")]


_mirrors: dict[pathlib.Path, Mirror] = {}


def use(root: pathlib.Path, store: Store, check: Callable[[], object] = lambda: None) -> None:
    """Mirrors the checkpoints in ``root`` from now on, in this process; see :class:`Mirror`."""
    _mirrors[root] = Mirror(root, store, check)


def of(root: pathlib.Path) -> Mirror | None:
    """The mirror of a folder; None without a store."""
    return _mirrors.get(root)
