"""Checkpoints: what a training goes on from after it was stopped, on any topology.

    root/
      391/               one folder per step, committed by a rename: whole or not there
        state.index      the arrays, by name ("model/conv2d/kernel", "optimizer/…", "step")
        state.data-…
        progress.json    step, settings, figures and evaluations so far
      .lock, .lease/     that one training writes here, and which

Checkpoints are written in the background, from a snapshot of the state, while training goes
on.

The arrays are in TensorFlow's own checkpoint format: it takes every dtype (npz
has no bfloat16), carries a checksum per array that is verified on reading, and
``tf.train.load_checkpoint`` reads it without this project. They are written as
plain names and values, so no object graph, strategy or device is in it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import logging
import pathlib
import zlib
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpointing import mirror
from stagecraft.trainer_module.checkpointing.atomic_folder import (
    atomic_folder,
    remove_folder,
    remove_leftovers,
)
from stagecraft.trainer_module.checkpointing.lease import Lease
from stagecraft.trainer_module.checkpointing.lock import locked

FORMAT = 3
KEEP = 2
"""So that there is one to fall back to when the newest cannot be read."""

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One committed step."""

    step: int
    state: dict[str, np.ndarray]
    """Name -> value: what ``Engine.restore`` takes."""

    progress: dict[str, Any]
    """The loop's own notes."""


class UnreadableCheckpointError(Exception):
    """A checkpoint is damaged, or of another version; the message says which and how."""


class Checkpoints:
    """The checkpoints of one training, under one folder.

    As a context manager it is the only one that writes there; outside of one it only reads.
    """

    def __init__(self, root: str | pathlib.Path, writes: bool = True, keep: int = KEEP):
        """Takes ``root``, which is made when first needed.

        Args:
            root: the folder.
            writes: False on all workers but the chief: they have the same state, and only read.
            keep: how many of the newest are kept, besides the best one.
        """
        self.root = pathlib.Path(root)
        self._mirror = mirror.of(self.root)
        self._writes = writes
        self._keep = keep
        self._unreadable: set[int] = set()
        self._held = contextlib.ExitStack()
        self._lease: Lease | None = None
        self._writer: concurrent.futures.Executor | None = None
        self._pending: concurrent.futures.Future[None] | None = None

    def __enter__(self) -> Checkpoints:
        """Locks ``root``, and removes what a crash left half-written.

        Raises:
            UserError: another training uses ``root``, or it cannot be written.
        """
        if self._writes:
            with contextlib.ExitStack() as held:
                self._lease = held.enter_context(locked(self.root))
                remove_leftovers(self.root)
                if self._mirror:
                    self._mirror.remove_leftovers()
                self._writer = held.enter_context(
                    concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
                )
                self._held = held.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Lets the save that is under way come to its end, and frees ``root``."""
        with self._held:
            try:
                self.flush()
            except Exception as failure:
                if error is None:
                    raise
                _log.warning("The last checkpoint was not written: %s", failure)
            finally:
                self._writer = self._lease = None

    def steps(self) -> list[int]:
        """The committed steps, oldest first."""
        if self._mirror:
            steps = self._mirror.steps()
            if not self._writes:
                self._mirror.prune(steps)
            return steps
        names = [entry.name for entry in self.root.glob("*")]
        return sorted(int(name) for name in names if name.isdecimal())

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        progress: Mapping[str, Any],
        best_step: int,
        needed: Collection[int] = (),
    ) -> None:
        """Begins to commit a step; then drops all but the newest, ``best_step`` and ``needed``.

        Waits for the save before it. That this one is done, only :meth:`flush` says.

        Args:
            step: its name.
            state: arrays or tensors that stay what they are, as ``Engine.snapshot`` gives them.
            progress: what JSON can hold.
            best_step: stays.
            needed: stay too: somebody still has to read them.

        Raises:
            LeaseLostError: another training has the folder now (also of the save before).
            UserError: the disk was full or could not be written in the save before this one; what
                was there stays as it was.
        """
        if not self._writes:
            return
        if self._writer is None:
            raise RuntimeError(f"{self.root} is not locked: save inside of `with Checkpoints(…)`")
        self.flush()
        notes = {"format": FORMAT, "step": step, "arrays": len(state), **progress}
        # A copy of the dictionary: what is written is taken out of it.
        self._pending = self._writer.submit(self._commit, dict(state), notes, {best_step, *needed})

    def flush(self) -> None:
        """Waits until what was saved is on the disk.

        Raises:
            UserError: the disk is full or cannot be written; what was there stays as it was.
        """
        pending, self._pending = self._pending, None
        if pending:
            pending.result()

    def clear(self) -> None:
        """Removes all checkpoints; the newest goes last, and speaks for the others until then.

        Raises:
            UserError: they cannot be removed.
        """
        if self._writes:
            self.flush()
            self._check_lease()
            for step in self.steps():
                self._remove(step)

    def load(self, step: int) -> Checkpoint:
        """Reads and verifies one checkpoint.

        Raises:
            UnreadableCheckpointError: it is not there, damaged, or of another format.
        """
        folder, progress = self.root / str(step), self.notes(step)
        try:
            reader = tf.train.load_checkpoint(str(folder / "state"))
            names = reader.get_variable_to_shape_map()
            if len(names) != progress["arrays"]:
                raise ValueError(f"{len(names)} arrays, expected {progress['arrays']}")
            state = {name: np.asarray(reader.get_tensor(name)) for name in names}
        except Exception as error:  # of a damaged file TensorFlow says IndexError, RuntimeError, …
            raise UnreadableCheckpointError(f"{folder}: {error}") from error
        return Checkpoint(step, state, progress)

    def notes(self, step: int) -> dict[str, Any]:
        """The loop's own notes beside a checkpoint, without its arrays.

        Raises:
            UnreadableCheckpointError: as :meth:`load`.
        """
        folder = self.root / str(step)
        try:
            if self._mirror:
                self._mirror.fetch(step)
        except FileNotFoundError as error:  # dropped since it was listed
            raise UnreadableCheckpointError(str(error)) from error
        try:
            progress: dict[str, Any] = json.loads((folder / "progress.json").read_text())
            if progress["format"] != FORMAT:
                raise ValueError(f"format {progress['format']}, expected {FORMAT}")
            if progress.pop("checksum") != _checksum(progress):
                raise ValueError("progress.json: its checksum is not that of its contents")
        except Exception as error:  # of damaged text json says ValueError, KeyError, …
            raise UnreadableCheckpointError(f"{folder}: {error}") from error
        return progress

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that can be read; warns about each that cannot."""
        for step in reversed(self.steps()):
            try:
                return self.load(step)
            except UnreadableCheckpointError as error:
                self._unreadable.add(step)
                _log.warning("Checkpoint cannot be read, taking the one before: %s", error)
        return None

    def _commit(
        self, state: dict[str, Any], notes: Mapping[str, Any], stay: Collection[int]
    ) -> None:
        step, names = notes["step"], sorted(state)
        with atomic_folder(self.root / str(step)) as folder, tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(folder / "state"),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                # Popped, because a tensor of an array is a copy: never all of them are there twice.
                tensors=[tf.convert_to_tensor(state.pop(name)) for name in names],
            )
            summed = {**notes, "checksum": _checksum(notes)}
            (folder / "progress.json").write_text(json.dumps(summed, indent=1))
            self._check_lease()  # last, before the rename that others see
        if self._mirror:
            self._mirror.commit(step)
        self._unreadable.discard(step)
        committed = self.steps()
        # One that cannot be read takes no place among the newest: there is nothing to fall back to.
        newest = [each for each in committed if each not in self._unreadable][-self._keep :]
        for old in set(committed) - {*newest, *stay}:
            with contextlib.suppress(UserError, OSError):
                self._remove(old)

    def _check_lease(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _remove(self, step: int) -> None:
        if self._mirror:
            self._mirror.drop(step)
        if (folder := self.root / str(step)).exists():
            remove_folder(folder)


def _checksum(notes: Mapping[str, Any]) -> int:
    """Of the values, as JSON reads them: spaces do not count."""
    return zlib.crc32(json.dumps(notes, sort_keys=True).encode())


def forget(folder: pathlib.Path) -> None:
    """Removes the checkpoints of all trainings that have a folder in ``folder``.

    Raises:
        UserError: one of them is going on, or its checkpoints cannot be removed.
    """
    for root in sorted(folder.glob("*/")):
        with Checkpoints(root) as store:
            store.clear()
