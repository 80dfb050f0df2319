"""Checkpoints: what a training goes on from after it was stopped, on any topology.

    root/
      391/               one folder per step, committed by a rename: whole or not there
        state.index      the arrays, by name ("model/conv2d/kernel", "optimizer/…", "step")
        state.data-…
        progress.json    step, settings and evaluations so far

The arrays are in TensorFlow's own checkpoint format: it takes every dtype (npz
has no bfloat16), carries a checksum per array that is verified on reading, and
``tf.train.load_checkpoint`` reads it without this project. They are written as
plain names and values, so no object graph, strategy or device is in it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.atomic_folder import PARTIAL, atomic_folder

FORMAT = 1
KEEP_NEWEST = 2
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
    """The checkpoints of one training, under one folder."""

    def __init__(self, root: str | pathlib.Path, writes: bool = True):
        """Takes ``root`` (made when first needed), and removes what a crash left half-written.

        Args:
            root: the folder.
            writes: False on all workers but the chief: they have the same state, and only read.
        """
        self.root = pathlib.Path(root)
        self._writes = writes
        for leftover in self.root.glob(f".*{PARTIAL}") if writes else ():
            shutil.rmtree(leftover, ignore_errors=True)

    def steps(self) -> list[int]:
        """The committed steps, oldest first."""
        names = [entry.name for entry in self.root.glob("*")]
        return sorted(int(name) for name in names if name.isdecimal())

    def save(
        self,
        step: int,
        state: Mapping[str, np.ndarray],
        progress: Mapping[str, Any],
        best_step: int,
    ) -> None:
        """Commits a step, then drops all but the newest two and ``best_step``.

        Raises:
            UserError: the disk is full or cannot be written; what was there stays as it was.
        """
        if not self._writes:
            return
        names = sorted(state)
        with atomic_folder(self.root / str(step)) as folder, tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(folder / "state"),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.convert_to_tensor(state[name]) for name in names],
            )
            notes = {"format": FORMAT, "step": step, "arrays": len(names), **progress}
            (folder / "progress.json").write_text(json.dumps(notes, indent=1))
        steps = self.steps()
        for old in set(steps) - set(steps[-KEEP_NEWEST:]) - {best_step}:
            shutil.rmtree(self.root / str(old), ignore_errors=True)

    def load(self, step: int) -> Checkpoint:
        """Reads and verifies one checkpoint.

        Raises:
            UnreadableCheckpointError: it is not there, damaged, or of another format.
        """
        folder = self.root / str(step)
        try:
            progress = json.loads((folder / "progress.json").read_text())
            if progress["format"] != FORMAT:
                raise ValueError(f"format {progress['format']}, expected {FORMAT}")
            reader = tf.train.load_checkpoint(str(folder / "state"))
            names = reader.get_variable_to_shape_map()
            if len(names) != progress["arrays"]:
                raise ValueError(f"{len(names)} arrays, expected {progress['arrays']}")
            state = {name: np.asarray(reader.get_tensor(name)) for name in names}
        except Exception as error:  # of a damaged file TensorFlow says IndexError, RuntimeError, …
            raise UnreadableCheckpointError(f"{folder}: {error}") from error
        return Checkpoint(step, state, progress)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that can be read; warns about each that cannot."""
        for step in reversed(self.steps()):
            try:
                return self.load(step)
            except UnreadableCheckpointError as error:
                _log.warning("Checkpoint cannot be read, taking the one before: %s", error)
        return None
