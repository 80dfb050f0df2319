"""``check_parity``: proves that a topology computes what one device computes."""

from __future__ import annotations

import dataclasses
import html
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft import given, messages, process_state
from stagecraft.fitting import job, sources
from stagecraft.fitting.task import GivenTask
from stagecraft.objects import model as given_model
from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.data import batch as batches
from stagecraft.trainer_module.parity import cases, report
from stagecraft.trainer_module.parity.check import Check
from stagecraft.trainer_module.parity.report import Row
from stagecraft.trainer_module.processes import local
from stagecraft.trainer_module.settings import ParallelSettings

BATCHES = 8
"""Global batches of the comparison, at most; later steps take them again."""

STEPS = 8

SECONDS = 600.0
"""Default of the limit for each topology."""


@dataclasses.dataclass(frozen=True, repr=False)
class Proof:
    """The comparison of a topology with one device; true if they compute the same."""

    rows: tuple[Row, ...]
    """A row for each topology: differences, tolerances, verdict."""

    def __bool__(self) -> bool:
        return all(row.equal for row in self.rows)

    def __str__(self) -> str:
        reasons = [f"{row.topology}: {row.reason}" for row in self.rows if not row.equal]
        notes = [f"{row.topology}: {row.note}" for row in self.rows if row.note]
        return "\n".join([report.text(self.rows), *reasons, *notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks."""
        lines = [report.HEADER, *(row.cells() for row in self.rows)]
        kinds = ["th", *["td"] * len(self.rows)]
        rows = "".join(
            f"<tr>{''.join(f'<{kind}>{html.escape(cell)}</{kind}>' for cell in line)}</tr>"
            for kind, line in zip(kinds, lines, strict=True)
        )
        reasons = "".join(
            f"<p>{html.escape(f'{row.topology}: {row.reason}')}</p>"
            for row in self.rows
            if not row.equal
        )
        return f"<table>{rows}</table>{reasons}"


def check_parity(
    model: Any,
    x: Any,
    parallel: ParallelSettings,
    y: Any = None,
    *,
    loss: Any,
    optimizer: Any = "adam",
    batch_size: int | None = None,
    steps: int = STEPS,
    seed: int = 0,
    timeout_seconds: float = SECONDS,
    on_phase: Callable[[str, str], None] | None = None,
) -> Proof:
    """Compares a topology with one device, in processes of their own on this machine.

    Both train the same model with the same examples. The check compares gradients from equal
    weights, and the weights of a float64 training after some steps. It also checks that all
    replicas hold exactly the same variables. Tolerances follow from the depth of the sums. The
    model and its weights do not change.

    Args:
        model: a Keras model, or a function that builds one.
        x: arrays, or a dataset of batches ``(x, y)``; as for :func:`~stagecraft.fitting.fit.fit`.
        parallel: the topology; on a machine without enough devices, with ``virtual_devices``.
        y: targets of arrays.
        steps: of each training.
        timeout_seconds: limit for the processes of a topology.
        on_phase: called with ``configured`` or the reference's name, and its phase.

    Raises:
        UserError: an argument does not fit, or the topology is one device.
    """
    if steps < 1:
        raise SettingError("steps", steps, "is not a positive whole number", f"{STEPS}")
    parallel = job.topology_of(parallel)
    dtype = "float64" if given_model.precision_of(model, parallel) == "float64" else "float32"
    with process_state.restored(), messages.in_own_words(of_arguments=True):
        data = sources.source(
            x, y, None, batch_size=batch_size, steps=None, shuffle=False, seed=seed, dtype=dtype
        )
        task = GivenTask(
            data.inputs,
            data.targets,
            loss=loss,
            output_names=given_model.output_names(model),
            examples=data.three_inputs(),
        )
        made = job.make(
            model,
            task,
            optimizer=optimizer,
            parallel=parallel,
            batch_size=data.batch_size,
            steps=steps,
            seed=seed,
        )
        folder = pathlib.Path(tempfile.mkdtemp(prefix="stagecraft-parity-"))
        try:
            case = cases.configured(made.settings, steps=steps, batch_size=data.batch_size)
            if case is None:
                raise SettingError(
                    "parallel.strategy",
                    parallel.strategy,
                    "is one device, which is what a topology is compared with",
                    "a Parallel with replicas, stages or accumulate",
                )
            with messages.readable():
                _save(data, case.settings.train.batch_size, folder / "data.npz")
            (folder / "given.pkl").write_bytes(given.pack(made.names))
            check = Check(
                folder / "data.npz",
                {},
                folder,
                steps=steps,
                timeout_seconds=timeout_seconds,
                on_phase=on_phase or (lambda topology, phase: None),
                program=("-m", "stagecraft.fitting.parity_worker", str(folder / "given.pkl")),
                environment=local.import_path(),
            )
            rows = tuple(check.rows([case]))
        finally:
            made.release()
            shutil.rmtree(folder, ignore_errors=True)
    return Proof(rows)


def _save(data: sources.Source, size: int, path: pathlib.Path) -> None:
    """Writes whole batches of the first examples; a few examples repeat."""
    taken: list[Any] = []
    count = 0
    for batch in data.evaluate(data.batch_size, (0, 1)):
        there = np.asarray(batch.weights) > 0
        parts = tf.nest.map_structure(
            lambda part, there=there: np.asarray(part)[there], (batch.inputs, batch.targets[:1])
        )
        taken.append(parts)
        count += int(there.sum())
        if count >= BATCHES * size:
            break
    whole = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *taken)
    length = max(1, min(count // size, BATCHES)) * size
    rows = np.arange(length) % count
    inputs, targets = tf.nest.map_structure(lambda part: part[rows], whole)
    arrays = batches.to_arrays("inputs", inputs) | batches.to_arrays("targets", targets)
    np.savez(path, **arrays)
