"""What a process of a parity check is told, and the names in the file that it writes.

Imports no TensorFlow. The file is an ``.npz``::

    POINT/state/NAME              the reference's engine state after POINT steps
    POINT/gradients/BATCH/PATH    gradient by variable path, from that state
    POINT/magnitude/BATCH/PATH    M of criteria.py; the reference's only
    POINT/rounding/BATCH/PATH     R of criteria.py; the reference's only
    copies/gradients/0/PATH       gradient of a batch of equal parts, from the first state; and so
                                  magnitude, rounding: where the reference has them
    length/PATH                   n of criteria.py; the reference's only
    kinks                         K of criteria.py; the reference's only
    trajectory/NAME               model and shadows after all steps
    float64/NAME                  the same in float64, where that is compared
    amplified/NAME                what that differs by after a rounding; the reference's only
    notes                         JSON: see Notes
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stagecraft.trainer_module.settings import TrainingSettings

BATCHES_PER_POINT = 2
"""Batches whose gradients are compared at each point."""


def points(steps: int) -> tuple[int, ...]:
    """Steps after which gradients are compared: at the start, at a quarter, at the end."""
    return tuple(sorted({0, steps // 4, steps}))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One process's part."""

    settings: TrainingSettings
    num_classes: int
    data: str
    """``.npz`` of ``images``, float32 ``[n, height, width, channels]``, normalised, and ``labels``,
    int64 ``[n]``."""

    steps: int
    """Of a trajectory."""

    out: str
    """The file that is written."""

    reference: str | None
    """The file of the reference; None: this is the reference."""

    def write(self, path: str) -> None:
        """Writes it as JSON."""
        fields = vars(self) | {"settings": self.settings.flat()}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(fields, file)

    @classmethod
    def read(cls, path: str) -> Task:
        """The inverse of :meth:`write`."""
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
        return cls(**fields | {"settings": TrainingSettings.from_flat(fields["settings"])})

    @property
    def in_float64(self) -> bool:
        """Whether there is a trajectory in float64, which a training in 16 bits has not."""
        return not self.settings.parallel.precision.startswith("mixed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Notes:
    """What a process says of itself."""

    parts: int
    """Parts in which it took each batch."""

    has_state: bool
    """Whether the model has statistics, which are those of a part of a batch."""

    replicas: list[dict[str, str]]
    """Of each of its replicas: digests of the variables' bytes, by name."""

    float32: list[str] = dataclasses.field(default_factory=list)
    """Layers and variables of the reference that are less than float64 in the trajectory in
    float64, because the model's code says so."""

    random: list[str] = dataclasses.field(default_factory=list)
    """Of the reference: what a user has to know of the model's random layers, in sentences."""


def save(path: str, arrays: Mapping[str, np.ndarray], notes: Notes) -> None:
    """Writes the file; it is there whole, or not at all."""
    temporary = f"{path}.part.npz"
    text: Any = json.dumps(dataclasses.asdict(notes))
    np.savez(temporary, **arrays, notes=np.array(text))
    os.replace(temporary, path)


class Results:
    """What a process has written; read when it is asked for."""

    def __init__(self, path: str):
        self._arrays = np.load(path)
        self.notes = Notes(**json.loads(str(self._arrays["notes"])))

    def under(self, prefix: str) -> dict[str, np.ndarray]:
        """All arrays whose name begins so, by what follows it."""
        return {
            name.removeprefix(prefix): self._arrays[name]
            for name in self._arrays.files
            if name.startswith(prefix)
        }

    def scalars(self, prefix: str) -> dict[str, float]:
        """As :meth:`under`, as numbers."""
        return {name: float(value) for name, value in self.under(prefix).items()}


def compared(state: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Those of an engine's state that a trajectory is judged by: weights, statistics, shadows."""
    for name, value in state.items():
        if name.startswith(("model/", "ema/")) and np.issubdtype(value.dtype, np.floating):
            yield name, value
