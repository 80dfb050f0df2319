"""One stage: the whole model on every replica, under a ``tf.distribute`` strategy.

One custom loop for all strategies, with a Keras 3 model in it. In every step a
replica takes its part of the global batch; what the replicas found is put
together outside of them:

* the loss is ``sum(example losses) / global batch``, so that adding up the
  replicas' gradients gives the gradient of one device;
* the model's state (moving statistics, random seeds) is read once and written
  once a step, as the mean over the replicas: Keras leaves it to each of them,
  and they drift apart;
* steps and the learning rate come from a counter of our own, because an
  optimizer's own one is not right under every strategy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module import ema, optimizers, schedules
from stagecraft.trainer_module.engines.base import Metrics, NonFiniteLossError
from stagecraft.trainer_module.input_data import Batch
from stagecraft.trainer_module.losses import cross_entropy
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.topology import Topology


def make_strategy(topology: Topology) -> tf.distribute.Strategy:
    """The ``tf.distribute`` strategy over the topology's devices.

    Raises:
        ValueError: not a strategy of this engine.
    """
    devices = list(topology.devices)
    if topology.strategy == "one_device":
        return tf.distribute.OneDeviceStrategy(devices[0])
    if topology.strategy == "mirrored":
        # Logical CPUs share their memory: adding up on one of them beats a ring between them.
        reduction = None if topology.on_gpus else tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
    if topology.strategy == "central_storage":
        return tf.distribute.experimental.CentralStorageStrategy(devices, "CPU:0")
    raise ValueError(f"{topology.strategy!r} is no strategy of this engine")


class StrategyEngine:
    """An :class:`~stagecraft.trainer_module.engines.base.Engine` of replicas."""

    def __init__(
        self,
        topology: Topology,
        train: TrainSettings,
        total_steps: int,
        build_model: Callable[[AbstractContextManager[Any]], keras.Model],
    ):
        """Builds the model and its optimizer on the topology's devices.

        Args:
            topology: the devices.
            train: optimizer, schedule, smoothing, EMA, global batch size.
            total_steps: the schedule's length.
            build_model: builds, in the scope that it is given, a model of float32 images that
                gives logits ``[batch, classes]``.
        """
        self.replicas = topology.replicas
        self._on_gpus = topology.on_gpus
        self._settings = train
        self._strategy = make_strategy(topology)
        self._learning_rate = schedules.learning_rate(train, total_steps)
        with tf.device("CPU:0"):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._model = build_model(self._strategy.scope())
        variables = self._model.trainable_variables
        with self._strategy.scope():
            self._optimizer = optimizers.build(train, variables)
            self._shadows = ema.create(variables if train.ema_decay else [])
        self._train_graph = tf.function(self._train_steps, autograph=False)
        self._evaluate_graph = tf.function(self._evaluate_batch, autograph=False)

    @property
    def step(self) -> int:
        """Optimizer steps done so far."""
        return int(self._step.numpy())

    @property
    def learning_rate(self) -> float:
        """Of the last step."""
        return float(self._optimizer.learning_rate.numpy())

    # --- data ---

    def feed(self, dataset: tf.data.Dataset) -> Iterator[Batch]:
        """Iterator over global batches, each split evenly between the replicas in their order."""
        if self.replicas > 1:
            # Cut here, and not by the strategy, which guesses batch sizes from the dataset's graph.
            dataset = dataset.map(self._cut).unbatch()
        elif not self._on_gpus:
            return iter(dataset)  # there is no device to copy ahead to
        return iter(self._strategy.distribute_datasets_from_function(lambda _: dataset))

    def _cut(self, batch: Batch) -> Batch:
        return tf.nest.map_structure(
            lambda part: tf.reshape(part, [self.replicas, -1, *part.shape[1:]]), batch
        )

    # --- training ---

    def train(self, batches: Iterator[Batch], steps: int) -> Metrics:
        """Takes ``steps`` optimizer steps in one call of a graph: Python has no part in them.

        Raises:
            NonFiniteLossError: a step's loss is not finite; nothing is trained after it.
        """
        result = self._train_graph(batches, tf.constant(steps, tf.int64))
        done, last, losses, right = (float(part) for part in result)
        if not math.isfinite(last):
            raise NonFiniteLossError(self.step, last)
        examples = round(done) * self._settings.batch_size
        return Metrics(losses / done, right / examples, examples)

    def _train_steps(self, batches: Iterator[Batch], steps: tf.Tensor) -> Any:
        """Steps done, the last one's loss, sum of the losses, sum of the right answers."""

        def unfinished(done: tf.Tensor, last: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            return (done < steps) & tf.math.is_finite(last)

        def take(done: tf.Tensor, _: tf.Tensor, losses: tf.Tensor, right: tf.Tensor) -> Any:
            loss, correct = self._global_step(next(batches))
            return done + 1, loss, losses + loss, right + correct

        start = (tf.constant(0, tf.int64), tf.constant(0.0), tf.constant(0.0), tf.constant(0.0))
        return tf.while_loop(unfinished, take, start)

    def _global_step(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """One optimizer step on all replicas; its loss and the number of right answers."""
        strategy, model, train = self._strategy, self._model, self._settings
        self._optimizer.learning_rate.assign(self._learning_rate(self._step))
        loss, correct, state = strategy.run(self._replica_step, args=(batch,))
        for index, value in state.items():
            model.non_trainable_variables[index].assign(self._merged(value))
        self._step.assign_add(1)
        if train.ema_decay:
            decay = ema.decay_at(train.ema_decay, self._step)
            ema.update(strategy, self._shadows, model.trainable_variables, decay)
        total = tf.distribute.ReduceOp.SUM
        return strategy.reduce(total, loss, axis=None), strategy.reduce(total, correct, axis=None)

    def _replica_step(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, dict[int, tf.Tensor]]:
        model, train = self._model, self._settings
        variables = model.trainable_variables
        weights = [tf.convert_to_tensor(variable) for variable in variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            logits, state, penalties = self._apply(weights, batch.images, training=True)
            losses = cross_entropy(logits, batch.labels, train.label_smoothing)
            loss = tf.reduce_sum(losses * tf.cast(batch.weights, losses.dtype)) / train.batch_size
            loss += sum(tf.cast(penalty, loss.dtype) for penalty in penalties) / self.replicas
        self._optimizer.apply(tape.gradient(loss, weights), variables)
        return tf.cast(loss, tf.float32), _right_answers(logits, batch), state

    def _merged(self, value: Any) -> tf.Tensor:
        """A state variable's next value, from what the replicas made of it."""
        parts = self._strategy.experimental_local_results(value)
        if len(parts) == 1 or not parts[0].dtype.is_floating:  # seeds: the same on all of them
            return parts[0]
        return self._strategy.reduce(tf.distribute.ReduceOp.MEAN, value, axis=None)

    def _apply(
        self, weights: list[Any], images: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, dict[int, tf.Tensor], list[tf.Tensor]]:
        """Logits, changed state and penalties, as a function of ``weights``; assigns nothing.

        The state is by position in ``model.non_trainable_variables``.
        """
        model = self._model
        mapping = list(zip(model.trainable_variables, weights, strict=True))
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            logits = model(images, training=training)
            penalties = model.losses if training else []
        state = {
            index: tf.convert_to_tensor(value)
            for index, variable in enumerate(model.non_trainable_variables)
            if (value := scope.get_current_value(variable)) is not None
        }
        return logits, state, penalties

    # --- evaluation ---

    def evaluate(self, dataset: tf.data.Dataset) -> Metrics:
        """Loss and accuracy over the examples of ``dataset``, each by its weight (0 is padding)."""
        sums = np.zeros(3)
        for batch in self.feed(dataset):
            sums += [float(part) for part in self._evaluate_graph(batch)]
        losses, right, examples = sums.tolist()
        return Metrics(losses / examples, right / examples, round(examples))

    def _evaluate_batch(self, batch: Batch) -> list[tf.Tensor]:
        sums = self._strategy.run(self._evaluate_replica, args=(batch,))
        return [self._strategy.reduce(tf.distribute.ReduceOp.SUM, part, axis=None) for part in sums]

    def _evaluate_replica(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        weights = self._shadows or self._model.trainable_variables
        tensors = [tf.convert_to_tensor(variable) for variable in weights]
        logits, _, _ = self._apply(tensors, batch.images, training=False)
        losses = cross_entropy(logits, batch.labels)
        loss = tf.reduce_sum(losses * tf.cast(batch.weights, losses.dtype))
        return loss, _right_answers(logits, batch), tf.reduce_sum(batch.weights)

    # --- state ---

    def state(self) -> dict[str, np.ndarray]:
        """Step, model, optimizer and shadows, by variable path; nothing in it names a device."""
        return {name: np.asarray(variable.numpy()) for name, variable in self._named().items()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Sets every variable from what :meth:`state` gave, on this or any other topology.

        Raises:
            ValueError: other names or shapes than this model's.
        """
        named = self._named()
        if named.keys() != state.keys():
            differ = sorted(named.keys() ^ state.keys())
            raise ValueError(f"another model's state: {', '.join(differ[:5])} in one of them only")
        for name, variable in named.items():
            variable.assign(state[name])

    def weights(self) -> dict[str, np.ndarray]:
        """Variable path -> value; averaged weights where EMA is on."""
        values = {variable.path: variable.numpy() for variable in self._model.variables}
        averaged = zip(self._model.trainable_variables, self._shadows, strict=False)
        return values | {variable.path: shadow.numpy() for variable, shadow in averaged}

    def _named(self) -> dict[str, Any]:
        model, optimizer = self._model, self._optimizer
        shadows = zip(model.trainable_variables, self._shadows, strict=False)
        pairs = [
            ("step", self._step),
            *((f"model/{variable.path}", variable) for variable in model.variables),
            # Without the optimizer's own name, which Keras numbers through the process.
            *((f"optimizer/{slot.path.partition('/')[2]}", slot) for slot in optimizer.variables),
            *((f"ema/{variable.path}", shadow) for variable, shadow in shadows),
        ]
        named = dict(pairs)
        if len(named) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise UserError(
                f"train.model: two variables would be {twice!r} in a checkpoint; give their layers "
                "different names"
            )
        return named


def _right_answers(logits: tf.Tensor, batch: Batch) -> tf.Tensor:
    right = tf.equal(tf.argmax(logits, axis=-1), batch.labels)
    return tf.reduce_sum(tf.cast(right, tf.float32) * batch.weights)
