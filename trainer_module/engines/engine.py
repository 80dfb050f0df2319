"""Base of all engines: steps, evaluation and state, on any devices."""

from __future__ import annotations

import abc
import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from stagecraft.common import garbage_collection
from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.engines import feeding, placement_check, step_metrics
from stagecraft.trainer_module.engines.objective import Objective
from stagecraft.trainer_module.models import variable_patterns
from stagecraft.trainer_module.optimization import averages
from stagecraft.trainer_module.optimization.loss_scale import LossScale
from stagecraft.trainer_module.optimization.schedule import RateSchedule
from stagecraft.trainer_module.planning.plan import Plan
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings


class Engine(abc.ABC):
    """Holds a model, its optimizer and a step counter on the devices of a topology.

    A subclass defines one step over one global batch. One call of a graph takes several steps,
    without Python between them.
    """

    plan: Plan | None = None
    """The plan of a model in stages."""

    repeated = 0
    """Steps that were applied twice and counted once, since this process started."""

    def __init__(self, settings: TrainingSettings, total_steps: int):
        self._settings = settings
        self._total_steps = total_steps
        self._dtype = step_metrics.metrics_dtype(settings)
        self.objective = Objective(settings)
        self._scheduled_rate = learning_rate(settings.train, total_steps, self._dtype)
        schedule: RateSchedule = registries.SCHEDULES.get(settings.train.schedule)
        follows = schedule.follows_evaluations
        self._rate_factor = self._host_variable(1.0, self._dtype) if follows else None
        # An optimizer's own counter is wrong under some strategies.
        self._step = self._host_variable(0, tf.int64)
        half = settings.parallel.precision == "mixed_float16"
        self._loss_scale = LossScale() if half else None
        self.steps_before = 0
        """Steps of the trainings that this one continues."""
        self._placement_checked: set[int] = set()
        """The phases whose first step ran on the planned devices."""
        self._phases = [variable_patterns.ALL]
        self._train_graph = tf.function(self._train_steps, autograph=False)
        self._gradients_graph = tf.function(self._all_gradients, autograph=False)
        self._evaluate_graph = tf.function(self._evaluate_batch, autograph=False)

    def feed(self, dataset: tf.data.Dataset) -> Iterator[Any]:
        """Iterator over this worker's rows of global batches, for :meth:`train`; on the host."""
        return feeding.on_host(dataset)

    @abc.abstractmethod
    def _global_step(self, batch: Any) -> tuple[step_metrics.StepMetrics, tf.Tensor]:
        """One optimizer step; its metrics, and whether training can go on (bool scalar)."""

    @abc.abstractmethod
    def _freeze(self, frozen: Collection[str]) -> None:
        """Leaves the weights with these paths out of the steps that are traced next."""

    @abc.abstractmethod
    def _gradients(self, batch: Any) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Loss and gradients, by variable path, of a global batch."""

    @abc.abstractmethod
    def _check_placement(self, ops: list[placement_check.Op]) -> None:
        """Raises a UserError if ops of the first step ran on other devices than planned."""

    @abc.abstractmethod
    def _evaluate_batch(self, batch: Any) -> tf.Tensor:
        """:meth:`Objective.evaluation` of a global batch."""

    @abc.abstractmethod
    def _model_variables(self) -> dict[str, Variable]:
        """All but the step and the factors on loss and rate, by name in a checkpoint."""

    @abc.abstractmethod
    def sum_over_workers(self, values: Sequence[float]) -> list[float]:
        """Sums values over all workers, which all call it and wait for each other."""

    @property
    def step(self) -> int:
        """Optimizer steps done so far."""
        return int(self._step.numpy())

    @property
    def batches(self) -> int:
        """Global batches taken so far: more than steps if a loss scale skipped some."""
        return self.step + (int(self._loss_scale.skipped.numpy()) if self._loss_scale else 0)

    def scale_learning_rate(self, factor: float) -> None:
        """Sets the factor on the rate of a schedule that follows evaluations; others have none."""
        if self._rate_factor is not None:
            self._rate_factor.assign(factor)

    def _rate(self, step: tf.Tensor | int) -> tf.Tensor:
        rate = self._scheduled_rate(step)
        return rate if self._rate_factor is None else rate * self._rate_factor.read_value()

    @property
    def learning_rate(self) -> float:
        """Learning rate of the last step."""
        return float(self._rate(max(self.step - 1, 0)))

    def train(self, batches: Iterator[Any], steps: int) -> step_metrics.Metrics:
        """Takes ``steps`` global batches, each of them a step unless the loss scale skips it.

        Raises a NonFiniteLossError if a loss is not finite, and a UserError if an op of the first
        step ran on another device than planned.
        """
        left, losses, sums = steps, 0.0, np.zeros(self.objective.size)
        while left:
            result = self._train_phase(batches, left)
            done, healthy, last, of_phase = (float(part) for part in result[:4])
            if not healthy:
                # With a loss scale the step was not taken.
                step = self.step + (self._loss_scale is not None)
                raise step_metrics.NonFiniteLossError(step, last)
            left -= round(done)
            losses += of_phase
            sums += result[4].numpy().astype(np.float64)
        examples = steps * self._settings.train.batch_size
        return step_metrics.Metrics(losses / steps, self.objective.values(sums), examples)

    def _train_phase(self, batches: Iterator[Any], steps: int) -> Any:
        """Takes ``steps`` global batches, or fewer if a phase ends before."""
        number = variable_patterns.number_at(self._phases, self.step)
        # Another value of a Python argument is another trace.
        arguments = batches, tf.constant(steps, tf.int64), number
        if number in self._placement_checked:
            return self._train_graph(*arguments)
        with placement_check.recording() as ops, self._compiling():
            with garbage_collection.paused():
                self._train_graph.get_concrete_function(*arguments)
            result = self._train_graph(*arguments)
        self._check_placement(ops)
        self._placement_checked.add(number)
        return result

    @contextlib.contextmanager
    def _compiling(self) -> Iterator[None]:
        """Raises a UserError if the first step shows that XLA cannot compile the model."""
        try:
            yield
        except tf.errors.OpError as error:
            if not self._settings.parallel.jit:
                raise
            raise UserError(
                f"parallel.jit: XLA cannot compile {self._settings.train.model}: "
                f"{_compiler_says(error.message)}; set parallel.jit: false"
            ) from error

    def _train_steps(self, batches: Iterator[Any], steps: tf.Tensor, number: int = 0) -> Any:
        """Batches taken, whether it can go on, last loss, sum of losses, sums of the metrics.

        All steps are of the phase ``number``.
        """
        phase = self._phases[number]
        self._freeze(phase.frozen)

        def unfinished(done: tf.Tensor, healthy: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            if phase.end is None:
                return (done < steps) & healthy
            # A loss scale skips steps: more batches may be due than the phase has steps.
            return (done < steps) & healthy & (self._step.read_value() < phase.end)

        def take(
            done: tf.Tensor, _: tf.Tensor, __: tf.Tensor, losses: tf.Tensor, sums: tf.Tensor
        ) -> Any:
            metrics, healthy = self._global_step(next(batches))
            return (
                done + 1,
                healthy,
                metrics.loss,
                losses + metrics.loss,
                sums + metrics.sums,
            )

        zero = tf.constant(0.0, self._dtype)
        sums = tf.zeros([self.objective.size], self.objective.dtype)
        start = (tf.constant(0, tf.int64), tf.constant(True), zero, zero, sums)
        return tf.while_loop(unfinished, take, start, parallel_iterations=1)

    def _decay(self, done: tf.Tensor) -> tf.Tensor:
        """Decay of the averages after so many steps; a scalar."""
        train = self._settings.train
        if train.lookahead:
            return averages.lookahead_decay(train.lookahead, done, self._total_steps, self._dtype)
        return averages.ema_decay(train.ema_decay, self._counted(done))

    def _counted(self, step: tf.Tensor) -> tf.Tensor:
        """A number of steps, with those of the trainings that this one continues."""
        return step + self.steps_before if self.steps_before else step

    def _commit(self, finite: tf.Tensor | None, loss: tf.Tensor, apply: Callable[[], Any]) -> Any:
        """Takes the step, or skips it where a loss scale is on and a gradient is not finite."""

        def step() -> tf.Tensor:
            apply()
            self._step.assign_add(1)
            return tf.constant(True)

        if self._loss_scale is None or finite is None:
            step()
            return tf.math.is_finite(loss)
        tf.cond(finite, step, lambda: tf.constant(False))
        return self._loss_scale.update(finite)

    def _all_gradients(self, batch: Any) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        self._freeze(variable_patterns.ALL.frozen)
        return self._gradients(batch)

    def gradients(self, batch: Any) -> tuple[float, dict[str, np.ndarray]]:
        """Loss and gradient (by variable path) of one global batch; changes nothing.

        The result has the gradients of weights that ``train.freeze_after`` has frozen, too.
        """
        loss, gradients = self._gradients_graph(batch)
        return float(loss), {path: gradient.numpy() for path, gradient in gradients.items()}

    def evaluate(self, dataset: tf.data.Dataset) -> step_metrics.Metrics:
        """Loss and metrics over the examples of ``dataset``, each by its weight (0 is padding)."""
        sums = np.zeros(2 + self.objective.size)
        for batch in self.feed(dataset):
            sums += self._evaluate_graph(batch).numpy()
        return self.objective.evaluated(sums)

    def weights(self) -> dict[str, np.ndarray]:
        """Variable path -> value; averages in place of the variables that have some."""
        variables = self._model_variables()
        values = {name: each for name, each in variables.items() if name.startswith("model/")}
        values |= {name: each for name, each in variables.items() if name.startswith("ema/")}
        return {name.partition("/")[2]: np.asarray(each.numpy()) for name, each in values.items()}

    def state(self) -> dict[str, np.ndarray]:
        """Step, model, optimizer and averages, by variable path; independent of devices."""
        return {name: np.asarray(value.numpy()) for name, value in self._variables().items()}

    def snapshot(self) -> dict[str, Any]:
        """A snapshot of :meth:`state` that can be read while training continues.

        On CPUs the tensors share the variables' memory: TensorFlow copies a variable on write while
        a reader holds its value. GPUs lack the memory for both.
        """
        read = {name: _copies(value)[0].read_value() for name, value in self._variables().items()}
        return {
            name: value if ":CPU:" in value.device else np.asarray(value.numpy())
            for name, value in read.items()
        }

    def replica_states(self) -> list[dict[str, np.ndarray]]:
        """:meth:`state` of each replica in this process; equal, bit for bit."""
        copies = {name: _copies(value) for name, value in self._model_variables().items()}
        return [
            {name: values[min(replica, len(values) - 1)].numpy() for name, values in copies.items()}
            for replica in range(max(len(values) for values in copies.values()))
        ]

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Sets every variable from a :meth:`state` of this or any other topology."""
        named = self._variables()
        if named.keys() != state.keys():
            differ = sorted(named.keys() ^ state.keys())
            raise ValueError(f"another model's state: only one of them has {', '.join(differ[:5])}")
        for name, variable in named.items():
            variable.assign(state[name])

    def continue_from(self, before: Mapping[str, np.ndarray], moves: Mapping[str, Any]) -> None:
        """Takes weights, optimizer, averages and loss scale of a training on other data.

        The step stays 0, and so do schedules; the optimizer, dropout and moving averages count on.
        Call it before the first step.

        Args:
            before: :meth:`state`, whose ``step`` counts the steps of all trainings.
            moves: variable path -> ``transform_graph_match.Move`` of its rows.

        Raises:
            ValueError: the state is of another model or optimizer.
        """
        state = self.state()
        own = ("step", "learning_rate_factor")
        if differ := sorted((state.keys() ^ before.keys()) - {*own}):
            raise ValueError(f"only one of both has {', '.join(differ[:5])}")
        for name in state.keys() - {*own}:
            value, fresh = before[name], state[name]
            for path, move in moves.items():
                # Slots of an optimizer have the shape of their weight, or another one.
                of_weight = name in (f"model/{path}", f"ema/{path}")
                if of_weight or name.startswith(f"optimizer/{path.replace('/', '_')}"):
                    value = move(value, fresh) if move.fits(value, fresh) else value
            if value.shape != fresh.shape:
                raise ValueError(f"{name} has shape {value.shape}, not {fresh.shape}")
            state[name] = value
        self.restore(state)
        self.steps_before = int(before["step"])

    def _variables(self) -> dict[str, Variable]:
        scale = self._loss_scale.variables() if self._loss_scale else {}
        factor = {} if self._rate_factor is None else {"learning_rate_factor": self._rate_factor}
        return {"step": self._step, **scale, **factor, **self._model_variables()}

    def _host_variable(self, value: Any, dtype: tf.DType) -> tf.Variable:
        with tf.device("CPU:0"):
            return tf.Variable(value, dtype=dtype, trainable=False)


Variable = Any
"""A Keras, TensorFlow or distributed variable, or :class:`Copies` of one."""


class Copies(tuple[Any, ...]):
    """One variable's copies on several replicas; set together, read from the first."""

    def numpy(self) -> np.ndarray:
        """Value of the first copy."""
        return np.asarray(self[0].numpy())

    def assign(self, value: np.ndarray) -> None:
        """Sets all copies."""
        for copy in self:
            copy.assign(value)


def _copies(variable: Variable) -> tuple[Any, ...]:
    if isinstance(variable, Copies):
        return tuple(map(_unwrapped, variable))
    value = _unwrapped(variable)
    return tuple(getattr(value, "values", [value]))


def _unwrapped(variable: Any) -> Any:
    """TensorFlow's variable behind Keras's."""
    value = getattr(variable, "value", variable)
    return variable if callable(value) else value


def unique(pairs: list[tuple[str, Variable]]) -> dict[str, Variable]:
    """A dictionary of ``pairs``. Raises a UserError if two have the same name."""
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(
            f"train.model: two variables have the same key in a checkpoint, {twice!r}; give their "
            "layers different names"
        )
    return named


_TRACE = ("Graph execution error", "Detected at node", "File ", "<stack traces", "[[")
"""Starts of the lines of TensorFlow's message that tell the place and not the cause."""


def _compiler_says(message: str) -> str:
    """The cause, out of TensorFlow's message of many lines."""
    if found := re.search(r"unsupported operations[^:]*: (\w+)", message):
        return "it has no strings" if "T=DT_STRING" in message else f"it has no op {found[1]}"
    lines = [line.strip() for line in message.splitlines()]
    causes = [line for line in lines if line and not line.startswith(_TRACE)]
    return (causes or [message])[0][:200].rstrip()


def learning_rate(
    settings: TrainSettings, total_steps: int, dtype: tf.DType = tf.float32
) -> Callable[[tf.Tensor | int], tf.Tensor]:
    """The rate at step ``t`` of ``T = total_steps``, counted from 0, with ``w`` warm-up steps::

        rate(t) = learning_rate * min(1, (t + 1) / w) * decay(p),   p = max(0, (t - w) / (T - w))

    ``train.schedule`` names the decay. A schedule of Keras gives the rate itself, at step
    ``max(0, t - w)``, and the warm-up multiplies it. The first step has a rate above 0, and step
    ``w - 1`` has the peak. Without a warm-up the first factor is 1, unless the schedule has a
    default warm-up. The step is an int64 scalar, or a Python int; the rate is a scalar of
    ``dtype``.

    Raises:
        SettingError: the warm-up is longer than the training.
    """
    schedule: RateSchedule = registries.SCHEDULES.get(settings.schedule)
    warmup = settings.warmup_steps or round(schedule.default_warmup * total_steps)
    if warmup > total_steps:
        raise SettingError(
            "train.warmup_steps",
            warmup,
            f"is more than the {total_steps} steps of the training run",
            f"{total_steps // 10}, or raise train.steps or train.epochs",
        )

    rates = schedule.rates(settings)

    def rate(step: tf.Tensor | int) -> tf.Tensor:
        # Differences are taken in int64: exact, and only then divided.
        step = tf.cast(step, tf.int64)
        rising = tf.cast(step + 1, dtype) / max(warmup, 1)
        progress = tf.cast(step - warmup, dtype) / max(total_steps - warmup, 1)
        return rates(
            tf.minimum(rising, 1.0),
            tf.clip_by_value(progress, 0.0, 1.0),
            tf.maximum(step - warmup, 0),
        )

    return rate
