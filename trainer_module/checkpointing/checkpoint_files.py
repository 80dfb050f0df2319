"""The files of one checkpoint: arrays, and the loop's progress.

    391/                 a folder per step, whole or absent: a rename commits it (atomic_folder.py)
      state.index        the arrays, by name ("model/conv2d/kernel", "optimizer/…", "step")
      state.data-…
      progress.json      step, settings, metrics and evaluations so far

TensorFlow's own checkpoint format supports every dtype (npz lacks bfloat16), has a checksum per
array, and ``tf.train.load_checkpoint`` reads it without this project.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

FORMAT = 3


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One committed step."""

    step: int
    state: dict[str, np.ndarray]
    """Name -> value, for ``Engine.restore``."""
    progress: dict[str, Any]
    """The loop's progress."""


class UnreadableCheckpointError(Exception):
    """A checkpoint is damaged, or of another version; the message names it and the reason."""


def write(folder: pathlib.Path, state: dict[str, Any], progress: Mapping[str, Any]) -> None:
    """Writes the files to an empty folder; removes arrays and tensors from ``state`` one by one."""
    names = sorted(state)
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=str(folder / "state"),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            # Popped, because a tensor of an array is a copy: memory never holds all of them twice.
            tensors=[tf.convert_to_tensor(state.pop(name)) for name in names],
        )
    progress = {"format": FORMAT, "arrays": len(names), **progress}
    content = {**progress, "checksum": _checksum(progress)}
    (folder / "progress.json").write_text(json.dumps(content, indent=1))


def read(folder: pathlib.Path) -> Checkpoint:
    """Reads and verifies a checkpoint.

    Raises:
        UnreadableCheckpointError: the checkpoint is missing, damaged, or of another format.
    """
    progress = read_progress(folder)
    try:
        reader = tf.train.load_checkpoint(str(folder / "state"))
        names = reader.get_variable_to_shape_map()
        if len(names) != progress["arrays"]:
            raise ValueError(f"{len(names)} arrays, expected {progress['arrays']}")
        state = {name: np.asarray(reader.get_tensor(name)) for name in names}
    except Exception as error:  # for a damaged file TensorFlow raises IndexError, RuntimeError, …
        raise UnreadableCheckpointError(f"{folder}: {error}") from error
    return Checkpoint(int(folder.name), state, progress)


def read_progress(folder: pathlib.Path) -> dict[str, Any]:
    """Reads the progress of a checkpoint, without its arrays."""
    try:
        progress: dict[str, Any] = json.loads((folder / "progress.json").read_text())
        if progress["format"] != FORMAT:
            raise ValueError(f"format {progress['format']}, expected {FORMAT}")
        if progress.pop("checksum") != _checksum(progress):
            raise ValueError("progress.json: its checksum does not match its contents")
    except Exception as error:  # for damaged text json raises ValueError, KeyError, …
        raise UnreadableCheckpointError(f"{folder}: {error}") from error
    return progress


def _checksum(progress: Mapping[str, Any]) -> int:
    """Checksum of the values, independent of white space."""
    return zlib.crc32(json.dumps(progress, sort_keys=True).encode())
