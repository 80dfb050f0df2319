"""Five steps of each task in float64: by Keras's ``train_step``, one device, and two stages.

Prints JSON: case -> the largest difference of losses and variables from Keras.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.kinds.language_model import LanguageModel
from stagecraft.trainer_module.engines.factory import connect, make_engine
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers.scope import floatx
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

STEPS, BATCH = 5, 8
TEXT = {"length": 12, "vocabulary_size": 9}
SMALL = {"input_shape": (16, 16, 3), "num_classes": 2}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "language_model": (
        "language_model",
        "transformer_2_16_2",
        {"length": 12, "vocabulary_size": 9},
    ),
    "unet": ("unet", "unet_2", SMALL),
    "28x28x1": ("pictures", "cnn", {"input_shape": (28, 28, 1), "num_classes": 3}),
    "64x64x3": ("pictures", "resnet8", {"input_shape": (64, 64, 3), "num_classes": 3}),
}
"""Name -> task, model, arguments."""
IN_STAGES = ("28x28x1", "64x64x3")
Values = dict[str, np.ndarray]


def settings(task: str, model: str, optimizer: str, **parallel: Any) -> TrainingSettings:
    train = TrainSettings(
        model=model,
        steps=STEPS,
        batch_size=BATCH,
        optimizer=optimizer,
        schedule="constant",
        learning_rate=0.01,
        augment="none",
    )
    precision = ParallelSettings(precision="float64", virtual_devices=2, **parallel)
    return TrainingSettings(task={"name": task}, train=train, parallel=precision)


def data(task: Any, arguments: dict[str, Any]) -> Batch:
    """``[STEPS, BATCH, …]``."""
    draw = np.random.default_rng(5)
    ones = np.ones((STEPS, BATCH), np.float32)
    if isinstance(task, LanguageModel):
        shape = (STEPS, BATCH, arguments["length"] + 1)
        tokens = draw.integers(1, arguments["vocabulary_size"], shape)
        return Batch(tokens[..., :-1], tokens[..., 1:], ones)
    shape = arguments["input_shape"]
    images = draw.uniform(-1, 1, (STEPS, BATCH, *shape)).astype(np.float32)
    pixels = shape[:2] if task.name == "unet" else ()
    targets = draw.integers(0, arguments["num_classes"], (STEPS, BATCH, *pixels))
    return Batch(images, targets, ones)


def by_keras(training: TrainingSettings, arguments: dict[str, Any]) -> Values:
    task = training.task.found
    model = assemble(training.train, arguments, precision="float64", task=task)
    batch, losses = data(task, arguments), []
    with floatx("float64"):
        model.compile(
            make_optimizer(training.train, model.trainable_variables),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
        for step in range(STEPS):
            model.reset_metrics()
            logs = model.train_on_batch(batch.inputs[step], batch.targets[step], return_dict=True)
            losses.append(float(logs["loss"]))
    values = {variable.path: np.array(variable.numpy()) for variable in model.variables}
    return values | {"loss": np.array(losses).mean()}


def by_engine(training: TrainingSettings, arguments: dict[str, Any]) -> Values:
    task, devices = training.task.found, topology.resolve(training.parallel)
    build = functools.partial(assemble, training.train, arguments, precision="float64", task=task)
    engine = make_engine(connect(devices, training.parallel), devices, training, STEPS, build)
    batches = engine.feed(tf.data.Dataset.from_tensor_slices(data(task, arguments)))
    loss = engine.train(batches, STEPS).loss
    values = {
        name.removeprefix("model/"): value
        for name, value in engine.state().items()
        if name.startswith("model/")
    }
    return values | {"loss": np.array(loss)}


def difference(found: Values, expected: Values) -> float:
    assert found.keys() == expected.keys()
    return max(float(np.abs(np.float64(found[n]) - expected[n]).max(initial=0)) for n in expected)


def main() -> None:
    topology.configure_devices(ParallelSettings(virtual_devices=2))
    found: dict[str, float] = {}
    for name, (task, model, arguments) in CASES.items():
        for optimizer in ("adamw", "sgd"):
            one = settings(task, model, optimizer)
            expected = by_keras(one, arguments)
            found[f"{name} {optimizer}"] = difference(by_engine(one, arguments), expected)
        if name == "28x28x1":
            two = settings(task, model, "sgd", strategy="grid", stages=2, microbatches=2)
            found[f"{name} stages"] = difference(by_engine(two, arguments), expected)
        elif name in IN_STAGES:  # its batch statistics are those of the parts
            two = settings(task, model, "sgd", strategy="grid", stages=2)
            found[f"{name} stages"] = difference(by_engine(two, arguments), expected)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
