"""A small model and random examples for each task that the package has."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.settings import TrainingSettings

STEPS, BATCH = 5, 8
RATE = 2.0**-7
"""Learning rate and weight decay; float32 holds it exactly."""


class Case(NamedTuple):
    """A task, and a small model for it."""

    task: str
    model: str
    arguments: dict[str, Any] | None = None
    """Of the model's function; None: the task has a schema."""


CASES = {
    "regression": Case("regression", "wide_deep_8"),
    "taxi": Case("taxi", "wide_deep_8"),
    "language_model": Case(
        "language_model", "transformer_2_16_2", {"length": 12, "vocabulary_size": 9}
    ),
    "segmentation": Case("segmentation", "unet_2", {"input_shape": (16, 16, 3), "num_classes": 2}),
    "28x28x1": Case("image_classification", "cnn", {"input_shape": (28, 28, 1), "num_classes": 3}),
    "64x64x3": Case(
        "image_classification", "resnet8", {"input_shape": (64, 64, 3), "num_classes": 3}
    ),
}

TABLES = ("regression", "taxi")


def settings(case: Case, **train: Any) -> TrainingSettings:
    """The training of a case on one device."""
    given = {
        "model": case.model,
        "steps": STEPS,
        "batch_size": BATCH,
        "schedule": "constant",
        "learning_rate": RATE,
        "weight_decay": RATE,
        "augment": "none",
        **train,
    }
    return TrainingSettings.model_validate({"task": {"name": case.task}, "train": given})


def arguments(case: Case) -> dict[str, Any]:
    """Arguments of the model's function."""
    task = settings(case).task.found
    return case.arguments or dict(task.model_arguments(task.schema_file))


def steps_of(examples: Batch) -> Batch:
    """Examples as ``[STEPS, BATCH, …]``."""
    return tf.nest.map_structure(lambda rows: rows.reshape(STEPS, BATCH, *rows.shape[1:]), examples)


def examples(case: Case, count: int = STEPS * BATCH) -> Batch:
    """Random examples ``[count, …]``."""
    draw, given = np.random.default_rng(5), arguments(case)
    ones = np.ones(count, np.float32)
    if case.task in TABLES:
        return Batch(*settings(case).task.found.noise(given, count, draw), ones)
    if case.task == "language_model":
        tokens = draw.integers(1, given["vocabulary_size"], (count, given["length"] + 1))
        return Batch(tokens[:, :-1], tokens[:, 1:], ones)
    shape = given["input_shape"]
    images = draw.uniform(-1, 1, (count, *shape)).astype(np.float32)
    pixels = shape[:2] if case.task == "segmentation" else ()
    return Batch(images, draw.integers(0, given["num_classes"], (count, *pixels)), ones)
