"""Drives the engines of one topology over the fixed batches of a parity check."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data import batch as batches
from stagecraft.trainer_module.data.batch import Batch, Nest
from stagecraft.trainer_module.engines.factory import make_engine
from stagecraft.trainer_module.engines.training import Engine
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers import adapting
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.parity import criteria, tolerances
from stagecraft.trainer_module.parity.rounding_depth import count_nonsmooth_ops, rounding_depths
from stagecraft.trainer_module.parity.task import BATCHES_PER_POINT, Task, compared, points
from stagecraft.trainer_module.settings import TrainingSettings

_PROBES = 3
"""Gradients with random signs, which show the size of the sum's terms."""

State = Mapping[str, np.ndarray]
Rows = tuple[batches.Nest, batches.Nest]
"""Inputs and targets of a global batch."""


class Driver:
    """Drives engines of one topology over fixed batches."""

    def __init__(
        self, task: Task, devices: topology.Topology, strategy: tf.distribute.Strategy | None
    ):
        self._task, self._devices, self._strategy = task, devices, strategy
        size = task.settings.train.batch_size
        with np.load(task.data) as file:
            self._inputs, self._targets = (
                batches.from_arrays(name, file) for name in ("inputs", "targets")
            )
        self._count = len(tf.nest.flatten(self._targets)[0]) // size
        worker, workers = devices.rows
        self._rows = slice(size * worker // workers, size * (worker + 1) // workers)

    def engine(self, settings: TrainingSettings) -> Engine:
        """Makes an engine with new weights."""
        return make_engine(
            self._strategy, self._devices, settings, self._task.steps, self._build(settings)
        )

    def batches(self) -> tf.data.Dataset:
        """This worker's rows of the global batches, repeated for ever."""
        return self._dataset(map(self._rows_of, range(self._count))).repeat()

    def gradients(self, engine: Engine, point: int) -> dict[str, np.ndarray]:
        """``POINT/gradients/BATCH/PATH`` at the engine's weights."""
        return {
            f"{point}/gradients/{number}/{path}": value
            for number in range(BATCHES_PER_POINT)
            for path, value in self._gradients(engine, self._rows_of(point + number)).items()
        }

    def copies(self, engine: Engine, parts: int) -> dict[str, np.ndarray]:
        """``copies/gradients/0/PATH`` at the engine's weights, for a batch of equal parts."""
        gradients = self._gradients(engine, self._copies(parts))
        return {f"copies/gradients/0/{path}": value for path, value in gradients.items()}

    def reference(self, engine: Engine, settings: TrainingSettings) -> dict[str, np.ndarray]:
        """Trains; records state, gradients, their magnitudes and roundings at each point."""
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
        """Like :meth:`copies`, on one device with whole batches; with magnitudes, roundings."""
        return self._sized(engine, settings, self._copies(parts), "copies", 0)

    def _sized(
        self, engine: Engine, settings: TrainingSettings, rows: Rows, point: str, number: int
    ) -> dict[str, np.ndarray]:
        """``POINT/gradients/BATCH/PATH``, with ``magnitude`` and ``rounding``."""
        draw = np.random.RandomState(0)
        ones = np.ones(settings.train.batch_size, np.float32)
        signs = [ones, *draw.choice(np.array([-1, 1], np.float32), (_PROBES, len(ones)))]
        roundoff = tolerances.ROUNDOFF[settings.parallel.precision]
        probes = [self._gradients(engine, rows, weights) for weights in signs]
        with _perturbed(engine, engine.state(), roundoff, draw):
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
        """Trains from the engine's state; returns the compared entries of the final state."""
        engine.train(engine.feed(self.batches()), self._task.steps)
        return dict(compared(engine.state()))

    def amplified(
        self, engine: Engine, start: State, end: State, error: float
    ) -> dict[str, np.ndarray]:
        """``amplified/NAME``: the change of a trajectory by initial relative errors."""
        with _perturbed(engine, start, error, np.random.RandomState(0)):
            moved = self.trajectory(engine)
        return {
            f"amplified/{name}": np.array(criteria.largest(moved[name] - value))
            for name, value in end.items()
        }

    def model(self, settings: TrainingSettings) -> keras.Model:
        """A new model on the host."""
        return self._build(settings)()

    def depths(self, settings: TrainingSettings) -> dict[str, np.ndarray]:
        """``depth/PATH`` and ``nonsmooth_ops``."""
        model = self.model(settings)
        depths = rounding_depths(model, settings)
        arrays = {f"depth/{path}": np.array(depth) for path, depth in depths.items()}
        return arrays | {"nonsmooth_ops": np.array(count_nonsmooth_ops(model, settings))}

    def has_state(self, settings: TrainingSettings) -> bool:
        """Whether the model has batch statistics, which depend on the parts of a batch."""
        state = self.model(settings).non_trainable_variables
        return any("float" in str(variable.dtype) for variable in state)

    def compares_copies(self, settings: TrainingSettings) -> bool:
        """Whether to compare a batch of equal parts: the model has penalties, but no random layer.

        Random layers draw other numbers for each part.
        """
        model = self.model(settings)
        model(_slice(self._inputs, slice(2)), training=True)
        draws = any("seed_generator" in v.path for v in model.non_trainable_variables)
        return bool(model.losses) and not draws

    def _build(self, settings: TrainingSettings) -> Callable[..., keras.Model]:
        return functools.partial(
            assemble,
            settings.train,
            self._task.arguments,
            precision=settings.parallel.precision,
            task=settings.task.found,
            adapt_to=self._first_inputs,
        )

    def _first_inputs(self) -> Nest:
        """Inputs to which layers adapt; all processes have the same examples."""
        shapes = (leaf.shape[1:] for leaf in tf.nest.flatten(self._inputs))
        return _slice(self._inputs, slice(adapting.count(*shapes)))

    def _rows_of(self, batch: int) -> Rows:
        size, index = self._task.settings.train.batch_size, batch % self._count
        part = slice(index * size, (index + 1) * size)
        return _slice(self._inputs, part), _slice(self._targets, part)

    def _copies(self, parts: int) -> Rows:
        """A batch that repeats the first part of the first batch."""
        part = slice(0, self._task.settings.train.batch_size // parts)
        inputs, targets = tf.nest.map_structure(
            lambda rows: np.concatenate([rows[part]] * parts), self._rows_of(0)
        )
        return inputs, targets

    def _gradients(
        self, engine: Engine, rows: Rows, weights: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Gradients of a global batch, with a weight for each example's loss; None: 1."""
        return engine.gradients(next(engine.feed(self._dataset([rows], weights))))[1]

    def _dataset(
        self, global_batches: Iterable[Rows], weights: np.ndarray | None = None
    ) -> tf.data.Dataset:
        """This worker's rows of global batches, each with the same weights; None: 1."""
        if weights is None:
            weights = np.ones(self._task.settings.train.batch_size, np.float32)
        own = [_slice(Batch(*rows, weights), self._rows) for rows in global_batches]
        stacked = tf.nest.map_structure(lambda *parts: np.stack(parts), *own)
        return tf.data.Dataset.from_tensor_slices(stacked)


def _slice(nest: batches.Nest, part: slice) -> batches.Nest:
    return tf.nest.map_structure(lambda rows: rows[part], nest)


@contextlib.contextmanager
def _perturbed(
    engine: Engine, state: State, error: float, draw: np.random.RandomState
) -> Iterator[None]:
    """Gives the engine ``state`` with rounded weights in the block, and ``state`` after it."""
    engine.restore(
        {
            name: tolerances.rounded(value, error, draw)
            if name.startswith("model/") and np.issubdtype(value.dtype, np.floating)
            else value
            for name, value in state.items()
        }
    )
    yield
    engine.restore(state)


def _norm(values: np.ndarray) -> float:
    return float(np.linalg.norm(np.float64(values)))
