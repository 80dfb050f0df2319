"""Five steps of each task in float64: by Keras's ``train_on_batch``, and on topologies.

    python trainings.py CASE,… OPTIMIZER,… TOPOLOGY,…

Prints JSON: the differences of one device from Keras by ``CASE OPTIMIZER``, those of a topology
from one device by ``CASE TOPOLOGY``. A difference is the largest of losses and variables.
``CASE OPTIMIZER, rows`` is a difference that is not 0: see :class:`SumsRows`.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import keras
import numpy as np
import task_cases
import tensorflow as tf
from task_cases import CASES, STEPS, TABLES, Case, arguments, examples, steps_of

from stagecraft.trainer_module.engines.factory import connect, make_engine
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers.random_state import floatx
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.parallel.topology import configure_devices
from stagecraft.trainer_module.parity.criteria import largest_difference
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

DEVICES = {"precision": "float64", "virtual_devices": 6}
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "mirrored-2": {"strategy": "mirrored", "replicas": 2},
    "stages-3": {"strategy": "grid", "stages": 3, "microbatches": 4},
    "grid-2x2": {"strategy": "grid", "stages": 2, "replicas": 2},
}

SQUARES = ("adam", "adamw", "rmsprop")
"""Optimizers that divide by the root of a mean of squared gradients."""

Values = dict[str, np.ndarray]


class SumsRows(keras.Model):
    """Sums an embedding's gradients of the same id before the optimizer squares them.

    The gradient of ``keras.layers.Embedding`` is ``tf.IndexedSlices``, with a row for each id of
    the batch. ``keras.ops.square`` squares each row, but a weight's gradient is the sum of its
    rows.
    """

    def train_step(self, data: Any) -> dict[str, Any]:
        inputs, targets, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.compute_loss(inputs, targets, self(inputs, training=True))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(list(map(tf.convert_to_tensor, gradients)), self.trainable_weights)
        return {"loss": loss}


def settings(case: Case, optimizer: str, **parallel: Any) -> TrainingSettings:
    found = task_cases.settings(case, optimizer=optimizer)
    return found.model_copy(update={"parallel": ParallelSettings(**{**DEVICES, **parallel})})


def by_keras(case: Case, optimizer: str, *, sums_rows: bool) -> Values:
    training = settings(case, optimizer)
    task = training.task.found
    model = assemble(training.train, arguments(case), precision="float64", task=task)
    if sums_rows:
        model = SumsRows(model.input, model.output)
    batch, losses = steps_of(examples(case)), []
    with floatx("float64"):
        loss = {
            "regression": keras.losses.MeanSquaredError(),
            "taxi": keras.losses.BinaryCrossentropy(from_logits=True),
        }.get(case.task, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.compile(
            make_optimizer(training.train, model.trainable_variables), loss, jit_compile=False
        )
        for step in range(STEPS):
            model.reset_metrics()
            inputs, targets = tf.nest.map_structure(
                lambda rows, step=step: rows[step], (batch.inputs, batch.targets)
            )
            targets = targets[:, None] if case.task in TABLES else targets
            logs = model.train_on_batch(inputs, targets, return_dict=True)
            losses.append(float(logs["loss"]))
    values = {variable.path: np.array(variable.numpy()) for variable in model.variables}
    return values | {"loss": np.array(losses).mean()}


def by_engine(case: Case, optimizer: str, **parallel: Any) -> Values:
    training = settings(case, optimizer, **parallel)
    task, devices = training.task.found, topology.resolve(training.parallel)
    build = functools.partial(
        assemble, training.train, arguments(case), precision="float64", task=task
    )
    engine = make_engine(connect(devices, training.parallel), devices, training, STEPS, build)
    batches = engine.feed(tf.data.Dataset.from_tensor_slices(steps_of(examples(case))))
    loss = engine.train(batches, STEPS).loss
    values = {
        name.removeprefix("model/"): value
        for name, value in engine.state().items()
        if name.startswith("model/")
    }
    return values | {"loss": np.array(loss)}


def difference(found: Values, expected: Values) -> float:
    assert found.keys() == expected.keys()
    return largest_difference(found, expected)


def main(cases: str, optimizers: str, topologies: str) -> None:
    configure_devices(ParallelSettings(**DEVICES))
    found: dict[str, float] = {}
    for name in cases.split(","):
        case = CASES[name]
        one_device = functools.cache(functools.partial(by_engine, case))
        for optimizer in filter(None, optimizers.split(",")):
            one = one_device(optimizer, accumulate=1)
            sums_rows = case.task in TABLES and optimizer in SQUARES
            expected = by_keras(case, optimizer, sums_rows=sums_rows)
            found[f"{name} {optimizer}"] = difference(one, expected)
            if sums_rows:
                plain = by_keras(case, optimizer, sums_rows=False)
                found[f"{name} {optimizer}, rows"] = difference(one, plain)
        for each in filter(None, topologies.split(",")):
            values = by_engine(case, "adamw", **TOPOLOGIES[each])
            # Batch statistics are those of the parts.
            has_state = any(path.endswith("moving_mean") for path in values)
            parts = ParallelSettings(**DEVICES, **TOPOLOGIES[each]).parts if has_state else 1
            found[f"{name} {each}"] = difference(values, one_device("adamw", accumulate=parts))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
