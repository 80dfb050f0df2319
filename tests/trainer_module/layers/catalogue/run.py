"""Trains the models of rows under Keras and under the engines, and says how they compare.

    python -m catalogue.run OUT.json [NAME ...]     (tests/trainer_module/layers on the path)

Two logical CPUs. A row's results are by topology: a verdict and, where it is refused, the sentence.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from catalogue import keras_layers
from catalogue.rows import CLASSES, Row

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module import optimizers, topology
from stagecraft.trainer_module.assemble import assemble
from stagecraft.trainer_module.engines.factory import make_engine
from stagecraft.trainer_module.engines.strategies import connect
from stagecraft.trainer_module.input_data import Batch
from stagecraft.trainer_module.models import registry
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

TOPOLOGIES: dict[str, dict[str, Any]] = {
    "one_device": {},
    "mirrored": {"strategy": "mirrored", "replicas": 2},
    "stages": {"strategy": "grid", "stages": 2, "microbatches": 2},
    "remat": {"remat": True},
    "jit": {"jit": True},
}
TOLERANCE = 1e-10
STEPS = 5
BATCH = 8
EQUAL, BY_PART, DISTRIBUTION, REFUSED = "equal", "equal by part", "equal in distribution", "refused"

Values = dict[str, np.ndarray]


def main(out: str, *names: str) -> None:
    topology.configure_devices(ParallelSettings(virtual_devices=2))
    results = {}
    for row in all_rows():
        if names and row.name not in names:
            continue
        start = time.perf_counter()
        results[row.name] = examine(row)
        print(f"{row.name}: {time.perf_counter() - start:.1f} s", flush=True)
        for name, (verdict, why) in results[row.name].items():
            print(f"    {name:10}  {verdict}: {why}", flush=True)
        gc.collect()
    with open(out, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)


def all_rows() -> list[Row]:
    """In the order of the page."""
    return [*keras_layers.rows()]


def examine(row: Row) -> dict[str, list[str]]:
    """Topology -> verdict, and why."""
    registry._call = lambda *_: row.build()  # stands for a user's module
    try:
        oracle = by_keras(row)
    except Exception as error:
        oracle = None
        reason = f"Keras: {type(error).__name__}: {error}"
    found = {}
    for name, parallel in TOPOLOGIES.items():
        try:
            ours = by_engine(ParallelSettings(**parallel, precision="float64", virtual_devices=2))
        except UserError as error:
            found[name] = [REFUSED, str(error)]
            continue
        except Exception as error:
            found[name] = ["failed", f"{type(error).__name__}: {error}"[:600]]
            continue
        if oracle is None:
            found[name] = ["failed", reason[:600]]
            continue
        difference = compare(ours, oracle)
        found[name] = [EQUAL if difference[0] <= TOLERANCE else "differs", "%.2g %s" % difference]
    return found


def settings(parallel: ParallelSettings) -> TrainingSettings:
    train = TrainSettings(
        model="catalogue:row",
        steps=STEPS,
        batch_size=BATCH,
        schedule="constant",
        learning_rate=0.01,
        augment="none",
    )
    return TrainingSettings(train=train, parallel=parallel)


@functools.lru_cache(maxsize=1)
def data() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    images = generator.uniform(-1, 1, (STEPS, BATCH, 32, 32, 3)).astype(np.float32)
    return images, generator.integers(0, CLASSES, (STEPS, BATCH))


def by_keras(row: Row) -> list[Values]:
    """Losses, weights and state of Keras's own ``train_step``, after a step and after five."""
    train = settings(ParallelSettings()).train
    model = assemble(train, CLASSES, precision="float64")
    keras.config.set_floatx("float64")
    try:
        model.compile(
            optimizers.build(train, model.trainable_variables),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
        images, labels = data()
        points, losses = [], []
        for step in range(STEPS):
            model.reset_metrics()
            logs = model.train_on_batch(images[step], labels[step], return_dict=True)
            losses.append(float(logs["loss"]))
            if step in (0, STEPS - 1):
                values = {v.path: np.array(v.numpy()) for v in model.variables}
                points.append(values | {"loss": np.array(losses[-STEPS + 1 :]).mean()})
    finally:
        keras.config.set_floatx("float32")
    return points


def by_engine(parallel: ParallelSettings) -> list[Values]:
    """The same of an engine."""
    training = settings(parallel)
    devices = topology.resolve(parallel)
    build = functools.partial(assemble, training.train, CLASSES, precision="float64")
    engine = make_engine(connect(devices, parallel), devices, training, STEPS, build)
    images, labels = data()
    weights = np.ones(labels.shape, np.float32)
    batches = engine.feed(tf.data.Dataset.from_tensor_slices(Batch(images, labels, weights)))
    points = []
    for steps in (1, STEPS - 1):
        loss = engine.train(batches, steps).loss
        values = {
            name.removeprefix("model/"): value
            for name, value in engine.state().items()
            if name.startswith("model/")
        }
        points.append(values | {"loss": np.array(loss)})
    return points


def compare(ours: list[Values], oracle: list[Values]) -> tuple[float, str]:
    """The largest difference, and where."""
    worst = (0.0, "")
    for mine, theirs in zip(ours, oracle, strict=True):
        if mine.keys() != theirs.keys():
            return float("inf"), f"names: {sorted(mine.keys() ^ theirs.keys())[:4]}"
        for name in mine:
            if np.issubdtype(mine[name].dtype, np.number):
                off = np.abs(np.float64(mine[name]) - np.float64(theirs[name])).max(initial=0.0)
                worst = max(worst, (float(off), name))
    return worst


if __name__ == "__main__":
    main(*sys.argv[1:])
