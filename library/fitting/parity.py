"""``check_parity``: proves that a topology computes what one device computes."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft import copies
from stagecraft.common.errors import SettingError, UserError
from stagecraft.fitting import processes
from stagecraft.fitting.work import Loss, LossWeights, Model, Optimizer, Work, compiled_with
from stagecraft.parallel_model import session
from stagecraft.parallel_model.placement import Placement, normalizations
from stagecraft.trainer_module.parallel.cluster import jobs
from stagecraft.trainer_module.parity import criteria, tolerances
from stagecraft.trainer_module.parity.report import ParityReport, Row
from stagecraft.trainer_module.settings import ParallelSettings

STEPS = 8

_ROUNDING = {"float64": 2.0**-50, "float32": 2.0**-21, "float16": 2.0**-8, "bfloat16": 2.0**-5}
"""Relative error of a weight that one rounding of each example leaves, by dtype."""

_DISTURBED = 2.0**-48


def check_parity(
    model: Model,
    x: Any,
    y: Any = None,
    *,
    optimizer: Optimizer | None = None,
    loss: Loss | None = None,
    loss_weights: LossWeights | None = None,
    parallel: ParallelSettings,
    batch_size: int | None = None,
    sample_weight: Any = None,
    steps: int = STEPS,
    seed: int = 0,
) -> ParityReport:
    """Compares a topology with one device, in processes of their own on this machine.

    Both train copies of the model for some steps with the same batches, in float64 if the model
    can. The check compares all weights, and the loss of each step. It trains on one device once
    more, from weights that differ in the last digits: a difference may be some times as large as
    what becomes of those. The model and its weights do not change.

    Args:
        model: a Keras model, or a function that builds one.
        x: arrays, or a dataset of batches ``(x, y)``, as for ``keras.Model.fit``.
        y: targets of arrays.
        optimizer: of ``compile``, as are ``loss`` and ``loss_weights``; None: those of the model.
        parallel: the topology; on a machine without enough devices, with ``virtual_devices``, or
            after :func:`stagecraft.virtual_devices`.
        steps: of each training. If there are fewer batches, they come again.
        seed: of the weights that a function gives its model.

    Raises:
        UserError: an argument does not fit, or the topology is one device.
    """
    if steps < 1:
        raise SettingError("steps", steps, "is not a positive whole number", f"{STEPS}")
    session.check_settings(parallel)
    parts = parallel.parts * (1 if parallel.found.in_step else parallel.workers)
    if parts * parallel.model_parts == 1 and not jobs(parallel):
        raise SettingError(
            "parallel.strategy",
            parallel.strategy,
            "is one device, which is what a topology is compared with",
            "a Parallel with replicas, stages or accumulate",
        )
    compiled = compiled_with(optimizer, loss, None, loss_weights, None)
    if isinstance(model, keras.Layer):
        session.check_precision(parallel, model)
    batches = _batches(x, y, sample_weight, batch_size, steps)
    if parallel.cut_names and getattr(model, "built", False):
        Placement(model, parallel)  # before processes start, which takes long
    divides = _normalizes(model) and parts > 1
    accumulate = parts if divides else 1
    started, policies = time.monotonic(), _float64(model)

    def work(disturbances: Sequence[float], **settings: Any) -> Trajectory:
        known = ParallelSettings.model_validate(settings)
        return Trajectory(model, known, compiled, seed, batches, steps, disturbances)

    of_topology = parallel.model_dump(exclude_unset=True)
    own = {name: of_topology[name] for name in ("precision",) if name in of_topology}
    alone = (0.0, 0.0, _DISTURBED)
    try:
        expected = processes.run(work(alone, accumulate=accumulate), policies)
        of_topology.pop("precision", None)
    except UserError:
        if policies is None:
            raise
        policies = None  # some models compute in their own precision only
        expected = processes.run(work(alone, accumulate=accumulate, **own))
    first, again, disturbed = expected
    found, cause = None, None
    if any(not np.array_equal(again.weights[name], own) for name, own in first.weights.items()):
        cause = "one device computes something else in each training: the model draws random "
        cause += "numbers that are not Keras's; use keras.random with a SeedGenerator"
    else:
        try:
            [found] = processes.run(work((0.0,), **of_topology), policies)
        except UserError as error:
            cause = str(error)
    row = Row(
        topology="configured",
        reference=f"one device, {accumulate} parts" if divides else "one device",
        findings=() if found is None else _findings(found, first, disturbed, steps),
        precision=parallel.precision,
        seconds=time.monotonic() - started,
        cause=cause,
    )
    return ParityReport((row,))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of a training."""

    losses: Sequence[float]
    """Of each step."""
    weights: Mapping[str, np.ndarray]
    """By number and path."""


@dataclasses.dataclass
class Trajectory(Work):
    """Some steps of a training."""

    batches: Sequence[Any]
    steps: int
    disturbances: Sequence[float]
    """Relative changes of the initial weights; a training for each."""

    def run(self, callback: Any) -> list[Outcome]:
        """Trains, from the same weights each time."""
        with self.seeded():
            model = self.placed()
            model.train_on_batch(*self.batches[0])  # makes all variables
            start = [np.asarray(each) for each in _variables(model)]
            return [self._trained(model, start, each) for each in self.disturbances]

    def _trained(self, model: Any, start: Sequence[np.ndarray], disturbance: float) -> Outcome:
        draw = np.random.default_rng(0)
        trained = {id(each) for each in model.trainable_variables}
        for variable, value in zip(_variables(model), start, strict=True):
            if disturbance and id(variable) in trained:
                value = value * (1 + disturbance * draw.choice([-1.0, 1.0], np.shape(value)))
            variable.assign(value)
        losses = []
        for batch in itertools.islice(itertools.cycle(self.batches), self.steps):
            model.reset_metrics()
            losses.append(float(model.train_on_batch(*batch, return_dict=True)["loss"]))
        weights = {
            f"{number} {each.path}": np.asarray(each)
            for number, each in enumerate(model.variables)
            if "float" in str(each.dtype)
        }
        return Outcome(losses, weights)


def _variables(model: Any) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]


def _findings(
    found: Outcome, expected: Outcome, disturbed: Outcome, steps: int
) -> tuple[criteria.Finding, ...]:
    where = f"after {steps} steps"
    findings = []
    for name, value in expected.weights.items():
        findings.append(
            _finding(name.partition(" ")[2], found.weights[name], value, disturbed.weights[name],
                     where)
        )  # fmt: skip
    losses = (found.losses, expected.losses, disturbed.losses)
    for step, values in enumerate(zip(*losses, strict=True), start=1):
        own, alone, other = map(np.asarray, values)
        findings.append(_finding("loss", own, alone, other, f"of step {step}"))
    return (criteria.worst(findings),)


def _finding(
    name: str, found: np.ndarray, expected: np.ndarray, disturbed: np.ndarray, where: str
) -> criteria.Finding:
    """A difference may be some times that of disturbed weights, in digits of the dtype."""
    rounding = _ROUNDING.get(str(expected.dtype), _ROUNDING["float64"])
    amplified = criteria.distance(disturbed, expected) * max(rounding / _DISTURBED, 1.0)
    scale = float(np.abs(expected).max(initial=0.0)) + 1e-3
    bound = tolerances.DEVIATIONS * max(16 * amplified, 256 * rounding * scale)
    difference = criteria.distance(found, expected)
    return criteria.Finding(criteria.TRAJECTORY, name, difference, bound, where)


def _float64(model: Any) -> copies.Policies | None:
    """In place of the model's own dtypes; a function builds its model later."""
    before = model.dtype_policy.name if isinstance(model, keras.Layer) else "float32"
    return None if before == "float64" else copies.Policies(before, "float64")


def _normalizes(model: Any) -> bool:
    built = model if isinstance(model, keras.Layer) else model()
    return bool(normalizations(built))


def _batches(x: Any, y: Any, sample_weight: Any, size: int | None, steps: int) -> list[Any]:
    """Arrays of each batch, as ``train_on_batch`` takes them.

    Raises:
        SettingError: an argument is missing, or has no effect.
    """
    if isinstance(x, tf.data.Dataset):
        for name, value in (("y", y), ("sample_weight", sample_weight), ("batch_size", size)):
            if value is not None:
                use = "a dataset of batches (x, y, sample_weight) alone"
                raise SettingError(name, type(value).__name__, "is part of the dataset", use)
        found = [tf.nest.map_structure(np.asarray, batch) for batch in x.take(steps)]
        batches = [batch if isinstance(batch, tuple) else (batch,) for batch in found]
    elif y is None:
        raise SettingError("y", None, "is needed with arrays", "an array of targets")
    else:
        given = [x, y] if sample_weight is None else [x, y, sample_weight]
        parts = tf.nest.map_structure(np.asarray, tuple(given))
        count, size = len(tf.nest.flatten(parts)[0]), size or 32
        for name, part in zip(("x", "y", "sample_weight"), parts, strict=False):
            for each in tf.nest.flatten(part):
                if len(each) != count:
                    problem = f"has {len(each):,} rows, but x has {count:,}"
                    raise SettingError(name, None, problem, "as many rows in each", shown="it")
        batches = [
            tf.nest.map_structure(lambda part, at=at: part[at : at + size], parts)
            for at in range(0, min(count, steps * size), size)
        ]
    if not batches:
        raise SettingError("x", "no example", "is too little", "the examples of a batch")
    return batches
