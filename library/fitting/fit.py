"""``fit``: trains a Keras model on any topology, as ``keras.Model.fit`` does on one device."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from stagecraft import messages, process_state
from stagecraft.fitting import data_checks, job, processes, sources
from stagecraft.fitting import epochs as epochs_
from stagecraft.fitting.history import History
from stagecraft.fitting.task import GivenTask
from stagecraft.fitting.training import Training
from stagecraft.objects import model as given_model
from stagecraft.schemas.errors import SettingError
from stagecraft.trainer_module.processes import local
from stagecraft.trainer_module.settings import ParallelSettings


def fit(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    loss: Any,
    optimizer: Any = "adam",
    metrics: Any = (),
    parallel: ParallelSettings | None = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_data: Any = None,
    shuffle: bool = True,
    sample_weight: Any = None,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int = 1,
    seed: int = 0,
    checkpoint_dir: str | None = None,
) -> History:
    """Trains a model; arguments that Keras has, have Keras's meaning.

    Afterwards the given model has the trained weights, those of the last epoch. On every
    synchronous topology a step computes what ``keras.Model.fit`` computes on one device.

    Args:
        model: a Keras model (functional, sequential, or a class with ``get_config``), or a function
            without arguments that builds one. It need not be compiled.
        x: an array ``[examples, …]``, a tuple or a dictionary of arrays; or a ``tf.data.Dataset``
            of batches ``(x, y)`` or ``(x, y, sample_weight)``.
        y: targets ``[examples, …]``; None with a dataset.
        loss: name, ``keras.losses.Loss``, or a function of ``y`` and outputs that returns
            ``[batch, …]``; for several outputs, a list, or a dictionary by output.
        optimizer: name, or object of Keras, such as :class:`stagecraft.Muon`. Its configuration
            counts, not its state.
        metrics: names, objects, losses or functions, each the mean of a value for each example;
            or a :class:`stagecraft.Metric`.
        parallel: the topology; None: one device, the first GPU if there is one.
        batch_size: examples of a step, over all devices; None: 32, or the batches of a dataset.
        epochs: passes over the data.
        verbose: 1 or ``auto``: a progress bar; 2: a line for each epoch; 0: nothing.
        callbacks: a Keras callback that works by epochs, such as ``EarlyStopping``, or several.
        validation_data: a tuple ``(x, y)`` or ``(x, y, sample_weight)``, or a dataset of batches.
        shuffle: whether each epoch takes arrays in another order; a dataset keeps its own.
        sample_weight: factors of the losses, ``[examples]`` or ``[examples, 1]``; for several
            outputs also a list, or a dictionary by output.
        steps_per_epoch: of an infinite dataset, or of a shorter epoch.
        validation_steps: batches of a validation; None: all.
        validation_batch_size: None: ``batch_size``.
        validation_freq: epochs between validations.
        seed: of the order, of dropout, and of the weights that a function initializes.
        checkpoint_dir: folder of checkpoints. A call with the same arguments resumes from them; a
            finished training is not repeated. ``strategy="auto"`` keeps their topology.

    Raises:
        UserError: an argument does not fit, or the training failed because of data, model, devices
            or disk.
    """
    parallel = job.topology_of(parallel)
    _check(epochs, validation_freq, verbose)
    if checkpoint_dir is not None:
        _check_folder(pathlib.Path(checkpoint_dir))
    several = callbacks is None or isinstance(callbacks, Iterable)
    callbacks = list(callbacks or ()) if several else [callbacks]
    epochs_.check(callbacks)
    precision = given_model.precision_of(model, parallel)
    dtype = "float64" if precision == "float64" else "float32"
    with (
        process_state.restored(),
        messages.in_own_words(of_arguments=True),
        data_checks.diverged_in_own_words(),
    ):
        options: Mapping[str, Any] = {"seed": seed, "dtype": dtype}
        data = sources.source(
            x,
            y,
            sample_weight,
            batch_size=batch_size,
            steps=steps_per_epoch,
            shuffle=shuffle,
            **options,
        )
        data_checks.batched(x, model)
        data_checks.steps_of(data.of_pass, data.steps, epochs)
        validation = _validation(
            validation_data, validation_batch_size or batch_size, validation_steps, options
        )
        with data_checks.of_validation():
            data_checks.batched(validation_data, model)
        made = job.make(
            model,
            GivenTask(
                data.inputs,
                data.targets,
                loss=loss,
                metrics=metrics,
                output_names=given_model.output_names(model),
                examples=data.three_inputs(),
            ),
            optimizer=optimizer,
            parallel=parallel,
            batch_size=data.batch_size,
            steps=epochs * data.steps,
            seed=seed,
            checkpoint_dir=checkpoint_dir,
        )
        training = Training(
            made,
            data,
            validation,
            epochs,
            validation_freq,
            callbacks,
            1 if verbose == "auto" else int(verbose),
            checkpoint_dir,
        )
        try:
            trained = _Trained(model, made)
            if local.are_needed(made.settings.parallel):
                history, weights = processes.run(training)
                history.model = trained(weights)
            else:
                history, weights = training.run(trained)
                # A callback may have set other weights than those of the last epoch.
                history.model = trained.model if callbacks and history.epoch else trained(weights)
        finally:
            made.release()
    return history


class _Trained:
    """The caller's model, or one that the caller's function builds."""

    def __init__(self, model: Any, made: job.Job):
        self.model: Any = model if isinstance(model, keras.Model) else None
        self._job = made

    def __call__(self, weights: Mapping[str, Any]) -> keras.Model:
        """Gives it the weights, and returns it."""
        paths = self._job.builder.paths
        if self.model is None:
            self.model = self._job.build_model()
            paths = self._job.builder.paths
        job.assign(self.model, paths, weights)
        return self.model


def _validation(
    given: Any, batch_size: int | None, steps: int | None, options: Mapping[str, Any]
) -> sources.Source | None:
    if given is None:
        return None
    if isinstance(given, (tuple, list)) and len(given) in (2, 3):
        parts, size = (*given, None)[:3], batch_size
    elif isinstance(given, (tf.data.Dataset, sources.Source)):
        parts, size = (given, None, None), None
    else:
        many = isinstance(given, (tuple, list))
        shown = f"a {type(given).__name__}{f' of {len(given)} parts' if many else ''}"
        use = "(x, y), (x, y, sample_weight), or a tf.data.Dataset of batches"
        raise SettingError("validation_data", shown, "does not fit", use)
    with data_checks.of_validation():
        return sources.source(*parts, batch_size=size, steps=steps, shuffle=False, **options)


def _check(epochs: Any, validation_freq: Any, verbose: Any) -> None:
    for name, value in (("epochs", epochs), ("validation_freq", validation_freq)):
        if not isinstance(value, int) or value < 1:
            raise SettingError(name, value, "is not a positive whole number", "1")
    if verbose not in ("auto", 0, 1, 2):
        raise SettingError("verbose", verbose, "is not valid", "auto, 0, 1 or 2")


def _check_folder(path: pathlib.Path) -> None:
    file = next((each for each in (path, *path.parents) if each.is_file()), None)
    if file is not None:
        problem = f"cannot be a folder: {file} is a file"
        raise SettingError("checkpoint_dir", str(path), problem, str(file.with_name("checkpoints")))
