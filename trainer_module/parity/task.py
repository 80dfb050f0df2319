"""The input of a parity process, and the names in its output file.

Imports no TensorFlow. The file is an ``.npz``::

    POINT/state/NAME              the reference's engine state after POINT steps
    POINT/gradients/BATCH/PATH    gradient by variable path, from that state
    POINT/magnitude/BATCH/PATH    M of tolerances.py; only the reference's
    POINT/rounding/BATCH/PATH     R of tolerances.py; only the reference's
    copies/gradients/0/PATH       gradient of a batch of equal parts, from the first state, with
                                  magnitude and rounding; if the reference has them
    depth/PATH                    n of tolerances.py; only the reference's
    nonsmooth_ops                 K of tolerances.py; only the reference's
    trajectory/NAME               model and EMA weights after all steps
    float64/NAME                  the same in float64, where that is compared
    amplified/NAME                their change by an initial rounding; only the reference's
    notes                         JSON: see Notes
"""

from __future__ import annotations

import dataclasses
import json
import os
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stagecraft.trainer_module.data.tasks.task import ModelArguments
from stagecraft.trainer_module.processes.training_task import TrainingTask
from stagecraft.trainer_module.settings import TrainingSettings

_RUN_FN = "stagecraft.trainer_module.parity.worker.run_fn"

BATCHES_PER_POINT = 2
"""Batches whose gradients are compared at each point."""


def points(steps: int) -> tuple[int, ...]:
    """Steps after which gradients are compared: at the start, at a quarter, at the end."""
    return tuple(sorted({0, steps // 4, steps}))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """The part of one process."""

    settings: TrainingSettings
    arguments: ModelArguments
    """Of the model's function."""
    data: str
    """``.npz`` of the examples, by the names of :func:`~.batch.to_arrays`: ``inputs`` and
    ``targets``, each ``[n, …]``. For pictures: normalised, float32; int64."""
    steps: int
    out: str
    reference: str | None
    """Path of the reference's file; None: this process is the reference."""

    def line(self) -> str:
        """The task as text, for a process of :mod:`stagecraft.trainer_module.worker`."""
        fields = vars(self) | {"arguments": dict(self.arguments)}
        config = {"settings": fields.pop("settings").flat()}
        return TrainingTask(_RUN_FN, types.SimpleNamespace(custom_config=config, **fields)).line()

    @classmethod
    def of(cls, fn_args: Any) -> Task:
        """The task of which :meth:`line` made the arguments of a ``run_fn``."""
        return cls(
            settings=TrainingSettings.from_flat(fn_args.custom_config["settings"]),
            arguments=_tuples(fn_args.arguments),
            data=fn_args.data,
            steps=fn_args.steps,
            out=fn_args.out,
            reference=fn_args.reference,
        )

    @property
    def in_float64(self) -> bool:
        """Whether there is a trajectory in float64; a training in 16 bits has none."""
        return not self.settings.parallel.precision.startswith("mixed")


def _tuples(value: Any) -> Any:
    """The value with tuples, of which JSON makes lists."""
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Notes:
    """Notes that a process makes about itself."""

    parts: int
    """Number of parts in which it took each batch."""
    has_state: bool
    """Whether the model has batch statistics, which depend on the parts."""
    replicas: list[dict[str, str]]
    """For each of its replicas: digests of the variables' bytes, by name."""
    float32: list[str] = dataclasses.field(default_factory=list)
    """Layers and variables of the reference that its code keeps below float64, even in the float64
    trajectory."""
    random: list[str] = dataclasses.field(default_factory=list)
    """Notes on the reference's random layers for the user, in sentences."""


def save(path: str, arrays: Mapping[str, np.ndarray], notes: Notes) -> None:
    """Writes the file, whole or not at all."""
    temporary = f"{path}.part.npz"
    text: Any = json.dumps(dataclasses.asdict(notes))
    np.savez(temporary, **arrays, notes=np.array(text))
    os.replace(temporary, path)


class Results:
    """A process's output file, read lazily."""

    def __init__(self, path: str):
        self._arrays = np.load(path)
        self.notes = Notes(**json.loads(str(self._arrays["notes"])))

    def under(self, prefix: str) -> dict[str, np.ndarray]:
        """All arrays whose name begins with the prefix, by the rest of the name."""
        return {
            name.removeprefix(prefix): self._arrays[name]
            for name in self._arrays.files
            if name.startswith(prefix)
        }

    def scalars(self, prefix: str) -> dict[str, float]:
        """Like :meth:`under`, as numbers."""
        return {name: float(value) for name, value in self.under(prefix).items()}


def compared(state: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """The entries of an engine's state that are compared: weights, statistics, EMA weights."""
    for name, value in state.items():
        if name.startswith(("model/", "ema/")) and np.issubdtype(value.dtype, np.floating):
            yield name, value
