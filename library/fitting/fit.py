"""``fit``: compiles a model, puts it on a topology, and calls Keras's own ``fit``."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import keras
import tensorflow as tf

from stagecraft.common.errors import SettingError
from stagecraft.fitting import processes
from stagecraft.fitting.backup import Backup
from stagecraft.fitting.history import History
from stagecraft.fitting.work import (
    Loss,
    LossWeights,
    Metrics,
    Model,
    Optimizer,
    Work,
    chosen,
    compiled_with,
)
from stagecraft.parallel_model import session
from stagecraft.parallel_model.lockstep import acts_on_batches, is_built
from stagecraft.trainer_module.models.layers import adapting
from stagecraft.trainer_module.processes import launcher
from stagecraft.trainer_module.settings import ParallelSettings

if TYPE_CHECKING:
    from typing_extensions import Unpack


STEPS = 16
"""Steps in one call of TensorFlow that ``steps_per_execution="auto"`` chooses."""


class Arguments(TypedDict, total=False):
    """Arguments of ``keras.Model.fit``."""

    batch_size: int | None
    epochs: int
    verbose: Any
    callbacks: Any
    validation_split: float
    validation_data: Any
    shuffle: bool
    class_weight: Mapping[int, float] | None
    sample_weight: Any
    initial_epoch: int
    steps_per_epoch: int | None
    validation_steps: int | None
    validation_batch_size: int | None
    validation_freq: int


def fit(
    model: Model,
    x: Any = None,
    y: Any = None,
    *,
    optimizer: Optimizer | None = None,
    loss: Loss | None = None,
    loss_weights: LossWeights | None = None,
    metrics: Metrics | None = None,
    weighted_metrics: Metrics | None = None,
    steps_per_execution: int | Literal["auto"] | None = None,
    parallel: ParallelSettings | None = None,
    seed: int | None = None,
    checkpoint_dir: str | None = None,
    **arguments: Unpack[Arguments],
) -> History:
    """Trains a model on a topology: ``compile``, :func:`stagecraft.parallelize`, and ``fit``.

    If the topology has several processes, or logical devices that this process can no longer make,
    this function starts processes on this machine, which get the model, the data and the callbacks.
    Afterwards the given model has the trained weights, and its optimizer their state.

    Args:
        model: a Keras model, or a function without arguments that builds one.
        x: data, as for ``keras.Model.fit``.
        y: targets, as there.
        optimizer: of ``compile``, as are ``loss``, ``loss_weights``, ``metrics`` and
            ``weighted_metrics``. If all of them are None, the model is compiled. An optimizer of
            None is that of the model, or ``adam``.
        steps_per_execution: steps in one call of TensorFlow, as in ``compile``. ``"auto"``: several
            if no callback looks at batches, which is faster for small models. None: that of the
            model.
        parallel: the topology; None: that of the model, which is one device at first.
        seed: of Python, NumPy and TensorFlow during the call; None: they stay as they are.
        checkpoint_dir: folder that keeps weights, optimizer and history after each epoch. A call
            with an equal model goes on from there; a finished training is not repeated. Counters of
            callbacks, such as the patience of ``EarlyStopping``, begin anew.
        arguments: of ``keras.Model.fit``.

    Raises:
        UserError: an argument does not fit, or a process failed.
        TypeError: Keras has no such argument; in processes, a UserError.
    """
    compiled = compiled_with(optimizer, loss, metrics, loss_weights, weighted_metrics)
    if parallel is not None:
        session.check_type(parallel)
        model, parallel = chosen(model, parallel, arguments.get("batch_size"), optimizer)
        session.check_settings(parallel)
    if checkpoint_dir is not None:
        _check_folder(pathlib.Path(checkpoint_dir))
    work = Fitting(
        model, parallel, compiled, seed, x, y, arguments, checkpoint_dir, steps_per_execution
    )
    if parallel is not None and launcher.are_needed(parallel):
        work.prepare()
        return processes.run(work)
    return work.run()


@dataclasses.dataclass
class Fitting(Work):
    """The arguments of :func:`fit`."""

    x: Any
    y: Any
    arguments: Arguments
    checkpoint_dir: str | None
    steps_per_execution: int | Literal["auto"] | None

    def prepare(self) -> None:
        """Makes the variables of a given model, so that it can take those of a copy.

        A model that cannot be built without data becomes the copy, and says so.
        """
        if isinstance(self.model, keras.Layer):
            self.compile(self.model)
            if not is_built(self.model):
                with self.seeded(), contextlib.suppress(Exception):  # whatever its call raises
                    self._build(self.model)

    def run(self, *callbacks: Any) -> History:
        """Trains in this process, alone or as one of several.

        Args:
            callbacks: of Keras, after the caller's.
        """
        with self.seeded():
            model = self.placed()
            adapting.adapt(model, self._first_inputs)
            given = self.arguments.get("callbacks") or []
            if isinstance(given, keras.callbacks.CallbackList):
                given = given.callbacks
            several = [*given] if isinstance(given, (list, tuple)) else [given]
            backup = None if self.checkpoint_dir is None else Backup(self.checkpoint_dir)
            if backup is not None and not is_built(model):
                self._build(model)
            arguments: dict[str, Any] = {**self.arguments}
            several += callbacks
            if backup is not None:
                several = backup.around(several)
            if several:
                arguments["callbacks"] = several
            self._set_steps(model, several)
            try:
                found = model.fit(self.x, self.y, **arguments)
            finally:
                model._initial_epoch = None  # else the next fit would begin there
            earlier = {} if backup is None else backup.earlier
            own = session.session_of(model)
            return History.of(found, model, None if own is None else own.topology, earlier)

    def _set_steps(self, model: Any, callbacks: Sequence[Any]) -> None:
        steps = self.steps_per_execution
        if steps == "auto":
            steps = 1 if any(map(_looks_at_batches, callbacks)) else STEPS
        if steps is not None and steps != model.steps_per_execution:
            model.steps_per_execution = steps
            model.train_function = model.test_function = model.predict_function = None

    def _build(self, model: Any) -> None:
        """Makes the variables, so that they can be restored; Keras does it in the first step."""
        if isinstance(self.x, tf.data.Dataset):
            specs = self.x.element_spec
        elif all(hasattr(each, "dtype") for each in tf.nest.flatten((self.x, self.y))):
            specs = tf.nest.map_structure(
                lambda each: tf.TensorSpec((None, *each.shape[1:]), each.dtype), (self.x, self.y)
            )
        else:
            problem = "needs a model that is built"
            use = "a call of the model, or model.build(…), before"
            raise SettingError("checkpoint_dir", self.checkpoint_dir, problem, use)
        model._symbolic_build(data_batch=specs)

    def _first_inputs(self) -> Any:
        """The inputs that layers adapt to, as many as in a pipeline."""
        if isinstance(self.x, tf.data.Dataset):
            batches = self.x.take(self.arguments.get("steps_per_epoch") or -1)
            shapes = [each.shape[1:] for each in tf.nest.flatten(_inputs(self.x.element_spec))]
            wanted, found = adapting.count(*shapes), []
            for batch in batches:
                found.append(_inputs(batch))
                if sum(len(tf.nest.flatten(each)[0]) for each in found) >= wanted:
                    break
            whole = tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *found)
        elif all(hasattr(each, "shape") for each in tf.nest.flatten(self.x)):
            whole = self.x
            wanted = adapting.count(*(each.shape[1:] for each in tf.nest.flatten(whole)))
        else:
            use = "the layer's adapt(x) before"
            raise SettingError("x", type(self.x).__name__, "is no array that layers adapt to", use)
        return tf.nest.map_structure(lambda part: part[:wanted], whole)


def _inputs(batch: Any) -> Any:
    return batch[0] if isinstance(batch, tuple) else batch


def _looks_at_batches(callback: Any) -> bool:
    frequencies = (getattr(callback, name, "epoch") for name in ("save_freq", "update_freq"))
    return acts_on_batches(callback) or any(each != "epoch" for each in frequencies)


def _check_folder(path: pathlib.Path) -> None:
    file = next((each for each in (path, *path.parents) if each.is_file()), None)
    if file is not None:
        problem = f"cannot be a folder: {file} is a file"
        raise SettingError("checkpoint_dir", str(path), problem, str(file.with_name("checkpoints")))
