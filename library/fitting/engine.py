"""``engine``: one training step at a time, for a loop of the caller's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft import messages, process_state
from stagecraft.fitting import data_checks, job, sources
from stagecraft.fitting.plan import Plan
from stagecraft.fitting.task import GivenTask, RowCount
from stagecraft.objects import model as given_model
from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.engines.factory import connect, make_engine
from stagecraft.trainer_module.engines.step_metrics import Metrics, NonFiniteLossError
from stagecraft.trainer_module.engines.training import Engine
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.processes import local
from stagecraft.trainer_module.settings import ParallelSettings
from stagecraft.trainer_module.training import diverged

Logs = dict[str, float]


class TrainingEngine:
    """A model, its optimizer and a step counter on the devices of a topology.

    As a context manager, it frees its objects at the end of the block.
    """

    def __init__(self, model: Any, made: job.Job, inner: Engine, devices: topology.Topology):
        self._model, self._job, self._engine = model, made, inner
        self.topology = devices
        """The devices."""
        self._paths = tuple(made.builder.paths)
        self._size = made.settings.train.batch_size
        self._dtype = "float64" if made.settings.parallel.precision == "float64" else "float32"
        self._part: str | None = None  # what depends on all rows of a batch; None: not known yet

    @property
    def step(self) -> int:
        """Optimizer steps done so far."""
        return self._engine.step

    @property
    def learning_rate(self) -> float:
        """Of the last step."""
        return self._engine.learning_rate

    @property
    def plan(self) -> Plan | None:
        """Cuts and predicted costs of a model in stages."""
        return None if self._engine.plan is None else Plan(self._engine.plan)

    def train_step(self, batch: Any) -> Logs:
        """Takes one optimizer step.

        Args:
            batch: ``(x, y)`` or ``(x, y, sample_weight)``, arrays or tensors of ``batch_size``
                examples. Fewer are no problem if neither the model nor the loss depends on all
                rows of a batch, as BatchNormalization does: copies, which do not count, fill up
                the step.

        Returns:
            ``loss``, with the penalties of the model, and the metrics: means over the batch.

        Raises:
            SettingError: the batch does not fit, or copies would count.
            UserError: the loss is not finite.
        """
        with (
            process_state.graph_options(),
            messages.in_own_words(of_arguments=True),
            data_checks.diverged_in_own_words(),
        ):
            dataset = tf.data.Dataset.from_tensors(self._batch(batch))
            topology.set_graph_options()
            try:
                return _logs(self._engine.train(self._engine.feed(dataset), 1))
            except NonFiniteLossError as error:
                precision = self._job.settings.parallel.precision
                raise diverged.in_training(error, precision, "") from None

    def evaluate(self, x: Any, y: Any = None, sample_weight: Any = None) -> Logs:
        """Loss and metrics over arrays, or a dataset of batches; the weights do not change.

        Raises:
            SettingError: the data do not fit; or copies would fill up a batch, and count.
        """
        data = sources.source(
            x,
            y,
            sample_weight,
            batch_size=None if isinstance(x, tf.data.Dataset) else self._size,
            steps=None,
            shuffle=False,
            seed=0,
            dtype=self._dtype,
        )
        size = self.topology.fitting_batch(data.batch_size)
        with process_state.graph_options(), messages.in_own_words(of_arguments=True):
            topology.set_graph_options()
            self._job.check_filled(data, size, "x")
            return _logs(self._engine.evaluate(data.evaluate(size, self.topology.rows)))

    def weights(self) -> list[np.ndarray]:
        """The model's weights, in the order of ``keras.Model.get_weights``."""
        values = self._engine.weights()
        return [values[path] for path in self._paths]

    def model(self) -> keras.Model:
        """A Keras model with the weights: the given one, or one that the given function builds."""
        if not isinstance(self._model, keras.Model):
            with process_state.restored():
                self._model = self._job.build_model()
        job.assign(self._model, self._paths, self._engine.weights())
        return self._model

    def predict(self, x: Any, batch_size: int | None = None) -> Any:
        """The outputs of :meth:`model` for ``x``, on one device, as ``keras.Model.predict``."""
        return self.model().predict(x, batch_size=batch_size, verbose=0)

    def state(self) -> dict[str, np.ndarray]:
        """Step, weights and optimizer state, for :meth:`restore` on any topology."""
        return self._engine.state()

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from a :meth:`state`.

        Raises:
            SettingError: the state is that of another model or optimizer.
        """
        try:
            self._engine.restore(state)
        except ValueError as error:
            problem = f"does not fit the engine: {error}"
            raise SettingError(
                "state", "of the argument", problem, "the state of an equal model and optimizer"
            ) from None

    def close(self) -> None:
        """Frees the objects; the engine cannot build models after that."""
        self._job.release()

    def __enter__(self) -> TrainingEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _batch(self, batch: Any) -> Any:
        parts: Sequence[Any] = batch if isinstance(batch, (tuple, list)) else ()
        if len(parts) not in (2, 3):
            raise SettingError(
                "batch", type(batch).__name__, "does not fit", "(x, y) or (x, y, sample_weight)"
            )
        data = sources.Arrays(*parts, batch_size=self._size, shuffle=False, dtype=self._dtype)
        if data.count > self._size:
            raise SettingError(
                "batch",
                f"{data.count} examples",
                "are more than a step takes",
                f"engine(…, batch_size={data.count})",
            )
        if data.count < self._size:
            self._check_short(data)
        return data.first_batch()

    def _check_short(self, data: sources.Arrays) -> None:
        if self._part is None:
            self._part = self._job.row_dependence(data, training=True)
        if self._part:
            raise SettingError(
                "batch",
                f"{data.count} of {self._size} examples",
                f"do not fill a step, and {self._part} depends on all rows of a batch",
                f"engine(…, batch_size={data.count}), or batches of {self._size} examples",
            )


def engine(
    model: Any,
    loss: Any,
    optimizer: Any = "adam",
    parallel: ParallelSettings | None = None,
    *,
    batch_size: int = 32,
    metrics: Any = (),
    input_shape: Any = None,
    seed: int = 0,
) -> TrainingEngine:
    """Puts a model and its optimizer on the devices of a topology, for a loop of your own.

    Arguments are those of :func:`~stagecraft.fitting.fit.fit`. A step of ``fit`` takes less time:
    it takes several steps in one call.

    Args:
        input_shape: of one example, if the model is not built.

    Raises:
        UserError: an argument does not fit, the topology has several processes, or TensorFlow has
            already started without the logical devices of ``virtual_devices``.
    """
    parallel = job.topology_of(parallel)
    with process_state.restored(), messages.in_own_words(of_arguments=True):
        inputs = given_model.specs(model, input_shape)
        task = GivenTask(
            inputs,
            None,
            loss=loss,
            metrics=metrics,
            output_names=given_model.output_names(model),
        )
        made = job.make(
            model,
            task,
            optimizer=optimizer,
            parallel=parallel,
            batch_size=batch_size,
            steps=1,
            seed=seed,
        )
        if local.is_local(made.settings.parallel):
            raise SettingError(
                "parallel.workers",
                parallel.workers,
                "needs several processes, but an engine is an object of this one",
                "stagecraft.fit, which starts processes, or parallel.replicas",
            )
        devices = topology.resolve(made.settings.parallel)
        connected = connect(devices, made.settings.parallel)
        inner = make_engine(connected, devices, made.settings, 1, made.build_without_data)
    return TrainingEngine(model, made, inner, devices)


def _logs(metrics: Metrics) -> Logs:
    values = {name: value for name, value in metrics.values.items() if name != RowCount.name}
    return {"loss": metrics.loss, **values}
