"""Five steps of a row's model, by Keras's own ``train_step`` and by an engine, in float64."""

import functools

import keras
import numpy as np
import tensorflow as tf
from catalogue.rows import CLASSES, Row

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.engines.factory import connect, make_engine
from stagecraft.trainer_module.models import build_model
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers.random_state import floatx
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

STEPS = 5
BATCH = 8

Values = dict[str, np.ndarray]
"""The mean loss of the steps, that of an evaluation, and all variables by path."""

ARGUMENTS = {"input_shape": (32, 32, 3), "num_classes": CLASSES}


def settings(parallel: ParallelSettings) -> TrainingSettings:
    """The training; the same on all topologies."""
    train = TrainSettings(
        model="catalogue:row",
        steps=STEPS,
        batch_size=BATCH,
        schedule="constant",
        learning_rate=0.01,
        augment="none",
    )
    return TrainingSettings(train=train, parallel=parallel)


def model_of(row: Row) -> keras.Model:
    """The row's model as a training builds it, checks included."""
    build_model._call = lambda *_: row.build()  # stands for a module of the user's
    return assemble(settings(ParallelSettings()).train, ARGUMENTS, precision=row.precision)


@functools.lru_cache(maxsize=1)
def data() -> tuple[np.ndarray, np.ndarray]:
    """Pictures ``[STEPS, BATCH, 32, 32, 3]`` and labels."""
    generator = np.random.default_rng(3)
    images = generator.uniform(-1, 1, (STEPS, BATCH, 32, 32, 3)).astype(np.float32)
    return images, generator.integers(0, CLASSES, (STEPS, BATCH))


def by_keras(row: Row) -> list[Values]:
    """After one step, and after five."""
    model = model_of(row)
    train = settings(ParallelSettings()).train
    images, labels = data()
    points, losses = [], []
    with floatx(row.precision):
        model.compile(
            make_optimizer(train, model.trainable_variables),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
        for step in range(STEPS):
            model.reset_metrics()
            logs = model.train_on_batch(images[step], labels[step], return_dict=True)
            losses.append(float(logs["loss"]))
            if step in (0, STEPS - 1):
                values = {v.path: np.array(v.numpy()) for v in model.variables}
                points.append(values | {"loss": np.array(losses[-STEPS + 1 :]).mean()})
        logits = tf.cast(model(images[0], training=False), tf.float64)
        points[-1]["evaluation"] = tf.reduce_mean(
            registries.TASKS.get("image_classification").losses(logits, labels[0], tf.float64, None)
        ).numpy()
    return points


def by_engine(row: Row, parallel: ParallelSettings) -> list[Values]:
    """The same."""
    training = settings(parallel)
    devices = topology.resolve(parallel)
    build_model._call = lambda *_: row.build()
    build = functools.partial(assemble, training.train, ARGUMENTS, precision=row.precision)
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
    first = tf.data.Dataset.from_tensor_slices(Batch(images[:1], labels[:1], weights[:1]))
    points[-1]["evaluation"] = np.array(engine.evaluate(first).loss)
    return points


def difference(found: list[Values], expected: list[Values], *, seeds: bool) -> tuple[float, str]:
    """The largest one, and where; of the states of random generators if ``seeds`` says so."""
    worst = (0.0, "")
    for mine, theirs in zip(found, expected, strict=True):
        if mine.keys() != theirs.keys():
            return float("inf"), f"{sorted(mine.keys() ^ theirs.keys())[0]} in one of them only"
        for name in mine:
            if not np.issubdtype(mine[name].dtype, np.number):
                continue
            if "seed_generator" in name and not seeds:
                continue
            off = np.abs(np.float64(mine[name]) - np.float64(theirs[name])).max(initial=0.0)
            worst = max(worst, (float(off) if np.isfinite(off) else float("inf"), name))
    return worst
