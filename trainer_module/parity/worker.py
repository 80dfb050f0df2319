"""The part of one process in a parity check: :mod:`stagecraft.trainer_module.worker` runs it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data import batch as batches
from stagecraft.trainer_module.data.batch import Batch, Nest
from stagecraft.trainer_module.engines.engine import Engine
from stagecraft.trainer_module.engines.factory import join, make_engine
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers import adapting, dropout
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.parity import cases, criteria, tolerances
from stagecraft.trainer_module.parity.rounding_depth import (
    count_nonsmooth_ops,
    forward_ops,
    rounding_depths,
)
from stagecraft.trainer_module.parity.task import (
    BATCHES_PER_POINT,
    Notes,
    Results,
    Task,
    compared,
    points,
    save,
)
from stagecraft.trainer_module.processes import events
from stagecraft.trainer_module.settings import TrainingSettings

_DTYPES = ("compute_dtype", "variable_dtype")
_FLOATS = ("float16", "bfloat16", "float32", "float64")

_PROBES = 3
"""Gradients with random signs, which show the size of the sum's terms."""

State = Mapping[str, np.ndarray]
Rows = tuple[Nest, Nest]
"""Inputs and targets of a global batch."""


def run_fn(fn_args: Any) -> None:
    """Meets the other processes of the topology, and does the part of this one.

    Emits the events ``started``, then ``phase`` with the name of each phase.

    Args:
        fn_args: of :meth:`.task.Task.line`.
    """
    task = Task.of(fn_args)
    joined = join(task.settings.parallel)
    measure(task, joined.devices, joined.connected)


def measure(task: Task, devices: Topology, strategy: tf.distribute.Strategy | None) -> None:
    """Computes the results to compare, and writes the output file of the task."""
    driver = Driver(task, devices, strategy)
    reference = None if task.reference is None else Results(task.reference)
    settings = task.settings
    events.emit("phase", phase=settings.parallel.precision)
    with forced_precision(settings.parallel.precision):
        if reference is None:
            has_state = driver.has_state(settings)
            if not (has_state or settings.parallel.precision.startswith("mixed")):
                settings = cases.whole_batches(settings)
            engine = driver.engine(settings)
            arrays = driver.reference(engine, settings) | driver.depths(settings)
            final = dict(compared(engine.state()))
            in_parts = settings.parallel.parts > 1 and task.in_float64
            if in_parts and driver.compares_copies(settings):
                arrays |= _copies(driver, settings, arrays)
        else:
            has_state = reference.notes.has_state
            engine = driver.engine(settings)
            arrays, final = {}, driver.trajectory(engine)
        replicas = [{name: _digest(v) for name, v in s.items()} for s in engine.replica_states()]
        arrays |= {f"trajectory/{name}": value for name, value in final.items()}
        if reference is not None:
            arrays |= _gradients(task, driver, engine, reference)

    low: list[str] = []
    random = dropout.notes(driver.model(settings)) if reference is None else []
    if task.in_float64:
        events.emit("phase", phase="float64")
        settings = cases.in_float64(settings)
        with forced_precision("float64"):
            engine = driver.engine(settings)
            start = engine.state()
            final = driver.trajectory(engine)
            arrays |= {f"float64/{name}": value for name, value in final.items()}
            if reference is None:
                low = float64_exceptions(driver.model(settings))
                depth = max(float(arrays[name]) for name in arrays if name.startswith("depth/"))
                error = tolerances.rounding_of_sums("float32" if low else "float64", depth)
                arrays |= driver.amplified(engine, start, final, error)
    engine.sum_over_workers([0.0])  # barrier: an early exit looks like a crash to peers
    parts = settings.parallel.parts
    notes = Notes(parts=parts, has_state=has_state, replicas=replicas, float32=low, random=random)
    save(task.out, arrays, notes)


def _gradients(
    task: Task, driver: Driver, engine: Engine, reference: Results
) -> dict[str, np.ndarray]:
    """Gradients of a topology at the states of the reference."""
    arrays: dict[str, np.ndarray] = {}
    for point in points(task.steps):
        engine.restore(reference.under(f"{point}/state/"))
        arrays |= driver.gradients(engine, point)
    if reference.under("copies/"):
        engine.restore(reference.under("0/state/"))
        arrays |= driver.copies(engine, task.settings.parallel.parts)
    return arrays


def _copies(
    driver: Driver, settings: TrainingSettings, arrays: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Gradients of a whole batch of equal parts, at the first state of the reference."""
    whole = cases.whole_batches(settings)
    engine = driver.engine(whole)
    first = "0/state/"
    engine.restore({n.removeprefix(first): v for n, v in arrays.items() if n.startswith(first)})
    return driver.whole_copies(engine, whole, settings.parallel.parts)


def _digest(value: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]


class Driver:
    """Drives engines of one topology over fixed batches."""

    def __init__(self, task: Task, devices: Topology, strategy: tf.distribute.Strategy | None):
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
            f"amplified/{name}": np.array(criteria.distance(moved[name], value))
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


def _slice(nest: Nest, part: slice) -> Nest:
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


@contextlib.contextmanager
def forced_precision(precision: str) -> Iterator[None]:
    """Makes every layer compute in float64, if that is the value of ``parallel.precision``.

    In this block, a layer's ``dtype="float32"`` or ``dtype="mixed_bfloat16"`` means float64. So do
    dtype policies that are set later, and those of a ``keras.dtype_policies.DTypePolicyMap``. A
    quantized layer keeps its dtype. Build, call and trace a model in the same block.
    """
    own = {name: vars(keras.DTypePolicy)[name] for name in _DTYPES}
    try:
        if precision == "float64":
            for name, value in own.items():
                setattr(keras.DTypePolicy, name, _as_float64(value))
        yield
    finally:
        for name, value in own.items():
            setattr(keras.DTypePolicy, name, value)


def _as_float64(dtype: Any) -> property:
    """The property of a dtype policy that returns float64 for any float dtype."""

    def read(policy: keras.DTypePolicy) -> Any:
        value = dtype.fget(policy)
        return "float64" if policy.quantization_mode is None and value in _FLOATS else value

    return property(read)


def float64_exceptions(model: keras.Model) -> list[str]:
    """Finds the places where a model computes in less precision, also in :func:`forced_precision`.

    These are paths of variables with their own dtype, and names of layers with casts in their code,
    such as ``tf.cast(scores, "float32")``. Dtype policies do not affect them.
    """
    low = [v.path for v in model.variables if v.dtype in _FLOATS and v.dtype != "float64"]
    # The data are float32, and so may be a functional model's inputs: no precision is lost.
    nodes = forward_ops(model, None if getattr(model, "inputs", None) else "float64")
    # Private, but the only list of all layers.
    layers = {layer.name for layer in model._flatten_layers()}
    casts = [
        _layer_of(node.name, layers)
        for node in nodes
        if node.op == "Cast" and _loses_precision(node)
    ]
    return list(dict.fromkeys([*low, *casts]))


def _loses_precision(cast: Any) -> bool:
    source, target = (tf.as_dtype(cast.attr[name].type) for name in ("SrcT", "DstT"))
    return bool(source == tf.float64 and target.is_floating and target != tf.float64)


def _layer_of(op: str, layers: set[str]) -> str:
    """``model/layer_1/Cast`` -> ``layer``; a cast outside of all layers keeps its name."""
    for scope in reversed(op.split("/")[:-1]):
        for name in (scope, scope.rpartition("_")[0]):
            if name in layers:
                return name
    return op
