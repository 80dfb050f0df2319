"""Engines of one topology, over the fixed batches of a parity check."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.input_data import Batch
from stagecraft.trainer_module.engines.base import Engine
from stagecraft.trainer_module.engines.factory import make_engine
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.parity import criteria, float64
from stagecraft.trainer_module.parity.rounding_depth import kinks, lengths
from stagecraft.trainer_module.parity.task import BATCHES_PER_POINT, Task, compared, points
from stagecraft.trainer_module.settings import TrainingSettings

_PROBES = 3
"""Gradients with random signs, from which the size of what is summed is seen."""

State = Mapping[str, np.ndarray]
Rows = tuple[np.ndarray, np.ndarray]
"""Images and labels of a global batch."""


class Driver:
    """Drives engines of one topology over fixed batches."""

    def __init__(
        self, task: Task, devices: topology.Topology, strategy: tf.distribute.Strategy | None
    ):
        self._task, self._devices, self._strategy = task, devices, strategy
        size = task.settings.train.batch_size
        with np.load(task.data) as file:
            images, labels = file["images"], file["labels"]
        self._count = len(labels) // size
        whole = slice(0, self._count * size)
        self._images = images[whole].reshape(self._count, size, *images.shape[1:])
        self._labels = labels[whole].reshape(self._count, size)
        worker, workers = devices.rows
        self._rows = slice(size * worker // workers, size * (worker + 1) // workers)

    def engine(self, settings: TrainingSettings) -> Engine:
        """A new engine, with weights of its own."""
        return make_engine(
            self._strategy, self._devices, settings, self._task.steps, self._build(settings)
        )

    def batches(self) -> tf.data.Dataset:
        """This worker's rows of the global batches, over and over."""
        weights = np.ones(self._labels.shape, np.float32)
        return self._dataset(self._images, self._labels, weights).repeat()

    def gradients(self, engine: Engine, point: int) -> dict[str, np.ndarray]:
        """``POINT/gradients/BATCH/PATH`` at the engine's weights."""
        return {
            f"{point}/gradients/{number}/{path}": value
            for number in range(BATCHES_PER_POINT)
            for path, value in self._gradients(engine, self._rows_of(point + number)).items()
        }

    def copies(self, engine: Engine, parts: int) -> dict[str, np.ndarray]:
        """``copies/gradients/0/PATH`` at the engine's weights, of a batch of equal parts."""
        found = self._gradients(engine, self._copies(parts))
        return {f"copies/gradients/0/{path}": value for path, value in found.items()}

    def reference(self, engine: Engine, settings: TrainingSettings) -> dict[str, np.ndarray]:
        """Trains; at each point: state, gradients, the size of what they are sums of, rounding."""
        arrays: dict[str, np.ndarray] = {}
        batches = engine.feed(self.batches())
        for point in points(self._task.steps):
            if point > engine.step:
                engine.train(batches, point - engine.step)
            arrays |= {f"{point}/state/{name}": value for name, value in engine.state().items()}
            for number in range(BATCHES_PER_POINT):
                rows = self._rows_of(point + number)
                arrays |= self._sized(engine, settings, rows, f"{point}", number)
        return arrays

    def whole_copies(
        self, engine: Engine, settings: TrainingSettings, parts: int
    ) -> dict[str, np.ndarray]:
        """As :meth:`copies`, with the size of what the gradients are sums of, and rounding.

        Args:
            engine: of one device that takes whole batches, at the weights of the first point.
            settings: of it.
            parts: of the topologies.
        """
        return self._sized(engine, settings, self._copies(parts), "copies", 0)

    def _sized(
        self, engine: Engine, settings: TrainingSettings, rows: Rows, point: str, number: int
    ) -> dict[str, np.ndarray]:
        """``POINT/gradients/BATCH/PATH``, and so ``magnitude`` and ``rounding``."""
        draw = np.random.RandomState(0)
        ones = np.ones(settings.train.batch_size, np.float32)
        signs = [ones, *draw.choice(np.array([-1, 1], np.float32), (_PROBES, len(ones)))]
        roundoff = criteria.ROUNDOFF[settings.parallel.precision]
        probes = [self._gradients(engine, rows, weights) for weights in signs]
        with _off_by_a_rounding(engine, engine.state(), roundoff, draw):
            moved = [self._gradients(engine, rows, weights) for weights in signs]
        arrays: dict[str, np.ndarray] = {}
        for path, value in probes[0].items():
            size = max(_norm(probe[path]) for probe in probes)
            pairs = zip(probes, moved, strict=True)
            change = max(_norm(np.float64(one[path]) - two[path]) for one, two in pairs)
            arrays[f"{point}/gradients/{number}/{path}"] = value
            arrays[f"{point}/magnitude/{number}/{path}"] = np.array(size)
            arrays[f"{point}/rounding/{number}/{path}"] = np.array(change)
        return arrays

    def trajectory(self, engine: Engine) -> dict[str, np.ndarray]:
        """Trains from the engine's state; name -> what a trajectory is judged by."""
        engine.train(engine.feed(self.batches()), self._task.steps)
        return dict(compared(engine.state()))

    def amplified(
        self, engine: Engine, start: State, end: State, error: float
    ) -> dict[str, np.ndarray]:
        """``amplified/NAME``: what a trajectory differs by, from weights off by a rounding.

        Args:
            engine: that of the trajectory.
            start: its state before, and
            end: what it came to.
            error: of each weight, relatively.
        """
        draw = np.random.RandomState(0)
        with _off_by_a_rounding(engine, start, error, draw):
            moved = self.trajectory(engine)
        return {
            f"amplified/{name}": np.array(criteria.largest(moved[name] - value))
            for name, value in end.items()
        }

    def random(self, settings: TrainingSettings) -> list[str]:
        """What a user has to know of the model's random layers, in sentences."""
        return dropout.notes(self._build(settings)())

    def exceptions(self, settings: TrainingSettings) -> list[str]:
        """Where the model computes in less than the float64 of its settings."""
        return float64.exceptions(self._build(settings)())

    def sizes(self, settings: TrainingSettings) -> dict[str, np.ndarray]:
        """``length/PATH`` and ``kinks``."""
        model = self._build(settings)()
        found = {f"length/{path}": np.array(n) for path, n in lengths(model, settings).items()}
        return found | {"kinks": np.array(kinks(model, settings))}

    def has_state(self, settings: TrainingSettings) -> bool:
        """Whether the model has statistics, which are those of a part of a batch."""
        state = self._build(settings)().non_trainable_variables
        return any("float" in str(variable.dtype) for variable in state)

    def compares_copies(self, settings: TrainingSettings) -> bool:
        """Whether a batch of equal parts tells more: the model has penalties, and draws nothing.

        With statistics, penalties can be held against those of a whole batch only where each part
        has the statistics of the whole. What a layer draws differs from part to part.
        """
        model = self._build(settings)()
        images = np.zeros((2, *self._images.shape[2:]), np.float32)
        model(images, training=True)
        draws = any("seed_generator" in v.path for v in model.non_trainable_variables)
        return bool(model.losses) and not draws

    def _build(self, settings: TrainingSettings) -> Callable[..., keras.Model]:
        return functools.partial(
            assemble,
            settings.train,
            self._task.num_classes,
            precision=settings.parallel.precision,
        )

    def _rows_of(self, batch: int) -> Rows:
        index = batch % self._count
        return self._images[index], self._labels[index]

    def _copies(self, parts: int) -> Rows:
        """A batch of the first batch's first part, as often as there are parts."""
        images, labels = self._rows_of(0)
        part = slice(0, len(labels) // parts)
        return np.concatenate([images[part]] * parts), np.concatenate([labels[part]] * parts)

    def _gradients(
        self, engine: Engine, rows: Rows, weights: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Of a global batch, each example's loss by its weight; None: 1."""
        images, labels = rows
        if weights is None:
            weights = np.ones(len(labels), np.float32)
        dataset = self._dataset(images[np.newaxis], labels[np.newaxis], weights[np.newaxis])
        return engine.gradients(next(engine.feed(dataset)))[1]

    def _dataset(
        self, images: np.ndarray, labels: np.ndarray, weights: np.ndarray
    ) -> tf.data.Dataset:
        rows = self._rows
        parts = (images[:, rows], labels[:, rows], weights[:, rows])
        return tf.data.Dataset.from_tensor_slices(Batch(*parts))


@contextlib.contextmanager
def _off_by_a_rounding(
    engine: Engine, state: State, error: float, draw: np.random.RandomState
) -> Iterator[None]:
    """The engine has ``state`` with rounded weights in the block, and ``state`` after it."""
    engine.restore(
        {
            name: criteria.rounded(value, error, draw)
            if name.startswith("model/") and np.issubdtype(value.dtype, np.floating)
            else value
            for name, value in state.items()
        }
    )
    yield
    engine.restore(state)


def _norm(values: np.ndarray) -> float:
    return float(np.linalg.norm(np.float64(values)))
