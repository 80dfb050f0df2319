"""The checkpoints of a training, from which it resumes on any topology.

The root has a folder per step, and ``.lock`` and ``.lease/``, which keep other trainings out. A
thread writes checkpoints in the background, from a snapshot of the state.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.checkpointing import checkpoint_files, mirror, resume
from stagecraft.trainer_module.checkpointing.atomic_folder import (
    atomic_folder,
    disk_errors,
    remove_folder,
    remove_leftovers,
)
from stagecraft.trainer_module.checkpointing.checkpoint_files import (
    Checkpoint,
    UnreadableCheckpointError,
)
from stagecraft.trainer_module.checkpointing.lease import Lease
from stagecraft.trainer_module.checkpointing.lock import locked

KEEP = 2
"""Leaves one checkpoint to fall back to if the newest is unreadable."""

REPLACED = "replaced-"
"""Beginning of the names of folders with checkpoints that another training has replaced."""

_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one training, under one folder.

    As a context manager it is the only writer; otherwise it only reads.
    """

    def __init__(self, root: str | pathlib.Path, writes: bool = True, keep: int = KEEP):
        """Reads and writes nothing yet. Only the chief ``writes``: all workers have the same state.

        ``keep``: number of the newest checkpoints to keep, besides the best one.
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
        """Locks ``root``, and removes incomplete checkpoints of a crash."""
        if self._writes:
            with contextlib.ExitStack() as held:
                self._lease = held.enter_context(locked(self.root))
                remove_leftovers(self.root)
                if self._mirror:
                    self._mirror.remove_leftovers()
                writer = concurrent.futures.ThreadPoolExecutor(1, "checkpoints")
                self._writer = held.enter_context(writer)
                self._held = held.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Waits for the pending save, and frees ``root``."""
        with self._held:
            try:
                self.flush()
            except Exception as failure:
                if kind is None:
                    raise
                _log.warning("The last checkpoint was not written: %s", failure)
            finally:
                self._writer = self._lease = None

    def steps(self) -> list[int]:
        """The committed steps, oldest first."""
        if not self._mirror:
            names = [entry.name for entry in self.root.glob("*")]
            return sorted(int(name) for name in names if name.isdecimal())
        steps = self._mirror.steps()
        if not self._writes:
            self._mirror.prune(steps)
        return steps

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        progress: Mapping[str, Any],
        best_step: int,
        needed: Collection[int] = (),
    ) -> None:
        """Starts saving a step; afterwards drops all but the newest, ``best_step`` and ``needed``.

        Waits for the previous save, and raises its errors. Nobody changes the arrays or tensors of
        ``state``; another process has still to read the ``needed`` steps.

        Raises:
            LeaseLostError: another training has taken over the folder.
            UserError: the disk was full, or not writable; older checkpoints are unchanged.
        """
        if not self._writes:
            return
        if self._writer is None:
            raise RuntimeError(f"{self.root} is not locked: save inside of `with Checkpoints(…)`")
        self.flush()
        progress = {"step": step, **progress}
        # A copy of the dictionary: `checkpoint_files.write` removes its entries.
        self._pending = self._writer.submit(
            self._commit, dict(state), progress, {best_step, *needed}
        )

    def flush(self) -> None:
        """Waits until the pending save is on the disk; raises as :meth:`save`."""
        pending, self._pending = self._pending, None
        if pending:
            pending.result()

    def clear(self) -> None:
        """Removes all checkpoints, oldest first: the newest marks the training until then."""
        if self._writes:
            self.flush()
            self._check_lease()
            for step in self.steps():
                self._remove(step)

    def set_aside(self) -> pathlib.Path:
        """Moves all checkpoints to a folder ``replaced-N``, oldest first; returns it."""
        numbers = [each.name.rpartition("-")[2] for each in self.root.glob(f"{REPLACED}*")]
        number = max((int(each) for each in numbers if each.isdecimal()), default=0) + 1
        aside = self.root / f"{REPLACED}{number}"
        if self._writes:
            self.flush()
            self._check_lease()
            with disk_errors(aside):
                aside.mkdir(parents=True)
                for step in self.steps():
                    folder = self._fetch(step)
                    if self._mirror:
                        self._mirror.set_aside(step, aside.name)
                    if folder.exists():
                        folder.rename(aside / folder.name)
        return aside

    def load(self, step: int) -> Checkpoint:
        """Reads and verifies one checkpoint; raises an UnreadableCheckpointError if it cannot."""
        return checkpoint_files.read(self._fetch(step))

    def notes(self, step: int) -> dict[str, Any]:
        """The loop's progress at a checkpoint, without its arrays."""
        return checkpoint_files.read_progress(self._fetch(step))

    def _fetch(self, step: int) -> pathlib.Path:
        try:
            if self._mirror:
                self._mirror.fetch(step)
        except FileNotFoundError as error:  # dropped meanwhile
            raise UnreadableCheckpointError(str(error)) from error
        return self.root / str(step)

    def newest(self) -> Checkpoint | None:
        """The newest readable checkpoint; warns about unreadable ones."""
        for step in reversed(self.steps()):
            try:
                return self.load(step)
            except UnreadableCheckpointError as error:
                self._unreadable.add(step)
                _log.warning("Unreadable checkpoint; using the one before: %s", error)
        return None

    def continued(self, settings: Mapping[str, Any], total: int) -> dict[str, Any]:
        """The flat settings of the training run that ``settings`` continue, as stored.

        Empty: none, because there is no readable checkpoint, or because the newest one is of a
        finished training run with other settings. ``parallel.precision: auto`` continues any
        precision.

        Args:
            settings: ``TrainingSettings.flat()``.
            total: steps of the whole run.
        """
        now = resume.resolved(settings, total)
        for step in reversed(self.steps()):
            with contextlib.suppress(UnreadableCheckpointError):
                notes = self.notes(step)
                before: dict[str, Any] = notes["settings"]
                if settings["parallel_precision"] == "auto":
                    now["parallel_precision"] = before.get("parallel_precision")
                return {} if notes["finished"] and resume.changes(before, now, step) else before
        return {}

    def _commit(
        self, state: dict[str, Any], progress: Mapping[str, Any], protected: Collection[int]
    ) -> None:
        step = progress["step"]
        with atomic_folder(self.root / str(step)) as folder:
            checkpoint_files.write(folder, state, progress)
            self._check_lease()  # last, before the rename that others see
        if self._mirror:
            self._mirror.commit(step)
        self._unreadable.discard(step)
        committed = self.steps()
        # An unreadable checkpoint does not count: training cannot resume from it.
        newest = [each for each in committed if each not in self._unreadable][-self._keep :]
        for old in set(committed) - {*newest, *protected}:
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


def forget(folder: pathlib.Path) -> None:
    """Removes the checkpoints of all trainings in ``folder``; refuses while one is running."""
    for root in sorted(folder.glob("*/")):
        with Checkpoints(root) as store:
            store.clear()
