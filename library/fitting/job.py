"""A model, its loss and its optimizer, as settings and given objects that any process can use."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from stagecraft import given, messages
from stagecraft.fitting.sources import Source
from stagecraft.fitting.task import GivenTask
from stagecraft.objects import batch_rows
from stagecraft.objects import model as given_model
from stagecraft.objects import optimizer as given_optimizer
from stagecraft.objects.model import Builder
from stagecraft.schemas.errors import SettingError, UserError
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers.adapting import Adapting
from stagecraft.trainer_module.models.layers.walk import walk
from stagecraft.trainer_module.planning.search import automatic
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings


@dataclasses.dataclass(frozen=True)
class Job:
    """What the engines need of a model; also in other processes, by the names."""

    settings: TrainingSettings
    names: Sequence[str]
    """Of the given objects that the settings name."""

    @property
    def task(self) -> GivenTask:
        """Inputs, targets, loss and metrics."""
        found: GivenTask = self.settings.task.found
        return found

    @property
    def builder(self) -> Builder:
        """Builds the model."""
        found: Builder = given.get(self.settings.train.model)
        return found

    def build_model(
        self, scope: Any = None, adapt_to: Callable[[], Any] | None = None
    ) -> keras.Model:
        """A new model with the caller's weights; ``adapt_to`` as in :func:`assemble`."""
        train, precision = self.settings.train, self.settings.parallel.precision
        try:
            model = assemble(train, {}, scope, precision, task=self.task, adapt_to=adapt_to)
        except UserError as error:
            if isinstance(error.__cause__, SettingError):  # the builder's own
                raise error.__cause__ from None
            raise
        self.builder.paths = [weight.path for weight in model.weights]
        return model

    def build_without_data(self, scope: Any = None) -> keras.Model:
        """As :meth:`build_model`, for a training whose data is not known yet.

        Raises:
            SettingError: a layer has to adapt to data first.
        """
        model = self.build_model(scope)
        for path, layer in walk(model):
            if isinstance(layer, Adapting) and not layer.adapted:
                raise SettingError(
                    "train.model",
                    f"{path} ({type(layer).__name__})",
                    "has not adapted to data, and an engine sees no data before its first step",
                    "the layer's adapt(x) before stagecraft.engine, or stagecraft.fit",
                )
        return model

    def row_dependence(self, data: Source, *, training: bool) -> str:
        """What depends on all rows of a batch, so that copies that fill up a batch would count.

        Returns:
            A part of the model, or the loss; empty: nothing.
        """

        def losses(outputs: Any) -> Any:
            count = len(tf.nest.flatten(outputs)[0])
            targets = self.task.zeros(data.targets, count)
            return self.task.losses(outputs, (targets,), tf.float32, training)

        model = self.build_model()
        return batch_rows.dependence(model, data.inputs, losses, training=training)

    def check_filled(self, data: Source, batch_size: int, argument: str) -> None:
        """Refuses the data of an evaluation if copies fill up one of its batches, and count.

        Args:
            batch_size: of the evaluation.
            argument: which the data are.

        Raises:
            SettingError: as said.
        """
        if not data.short and batch_size == data.batch_size:
            return
        part = self.row_dependence(data, training=False)
        filled = data.filled(batch_size) if part else 0
        if filled:
            raise SettingError(
                argument,
                f"{filled} of {batch_size} examples",
                f"do not fill a batch, and {part} depends on all rows of a batch",
                f"whole batches of {batch_size} examples",
            )

    def release(self) -> None:
        """Forgets the given objects."""
        given.release(self.names)


def make(
    model: Any,
    task: GivenTask,
    *,
    optimizer: Any,
    parallel: ParallelSettings,
    batch_size: int,
    steps: int,
    seed: int,
    resolves: bool = True,
    checkpoint_dir: str | None = None,
    **train: Any,
) -> Job:
    """Checks the arguments, and gives the objects names.

    Args:
        model: a Keras model, or a function that builds one.
        task: inputs, targets, loss and metrics.
        resolves: whether to replace ``strategy="auto"`` by a topology.
        checkpoint_dir: if it has checkpoints, the topology is that of the newest one.
        train: other settings of ``train:``.

    Raises:
        UserError: an argument does not fit.
    """
    if parallel.launcher == "kubernetes" or parallel.evaluator:
        setting = "launcher" if parallel.launcher == "kubernetes" else "evaluator"
        raise SettingError(
            f"parallel.{setting}",
            getattr(parallel, setting),
            "is for pipelines: a script trains in processes on this machine",
            f"the default of {setting}",
        )
    precision = given_model.precision_of(model, parallel)
    parallel = parallel.model_copy(update={"precision": precision})
    built = given_model.builder(model, task.input_specs({}), precision, task.probe_inputs)
    names = [given.put("model", built), given.put("task", task)]
    options, own = given_optimizer.settings(optimizer)
    names += own
    with messages.readable():
        settings = TrainingSettings.model_validate(
            {
                "task": {"name": names[1]},
                "train": {
                    "model": names[0],
                    "batch_size": batch_size,
                    "steps": steps,
                    "seed": seed,
                    **options,
                    **train,
                },
                "parallel": parallel.model_dump(),
            }
        )
    made = Job(settings, names)
    if not resolves:
        return made
    try:
        earlier = None
        if checkpoint_dir is not None:
            checkpoints = Checkpoints(checkpoints_in(checkpoint_dir), writes=False)
            earlier = checkpoints.continued(settings.flat(), steps)
        resolved = automatic.resolved(settings, made.build_model, earlier)
    except BaseException:
        made.release()
        raise
    return dataclasses.replace(made, settings=resolved.settings)


def checkpoints_in(folder: str) -> str:
    """Where ``fit`` keeps the checkpoints of a ``checkpoint_dir``."""
    return os.path.join(os.path.abspath(folder), "checkpoints")


def topology_of(parallel: Any) -> ParallelSettings:
    """The argument ``parallel``; one device for None.

    Raises:
        SettingError: it is something else.
    """
    if parallel is None:
        return ParallelSettings()
    if not isinstance(parallel, ParallelSettings):
        raise SettingError(
            "parallel", type(parallel).__name__, "is not a Parallel", "stagecraft.Parallel(…)"
        )
    return parallel


def assign(model: keras.Model, paths: Sequence[str], values: Mapping[str, Any]) -> None:
    """Sets a model's weights, in Keras's order, from values by the paths of a copy."""
    for weight, path in zip(model.weights, paths, strict=True):
        weight.assign(values[path])
