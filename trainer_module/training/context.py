"""The data, model and length of a training, independent of its devices."""

from __future__ import annotations

import os
import pathlib
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from stagecraft.common.errors import SettingError, UserError, said
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.checkpointing import checkpoint_files
from stagecraft.trainer_module.checkpointing.atomic_folder import atomic_folder
from stagecraft.trainer_module.data import input_data
from stagecraft.trainer_module.data.batch import Batch, Nest
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.engines.engine import Engine
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.initial_weights import source, transform_graph_match
from stagecraft.trainer_module.models.initial_weights.loading import Loaded, note_weights
from stagecraft.trainer_module.models.layers import adapting
from stagecraft.trainer_module.optimization.make_loss import check_loss, make_loss
from stagecraft.trainer_module.optimization.optimizer import Optimizer
from stagecraft.trainer_module.parallel import rules
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.training import test_time_augmentation

_CHECKED = 4
"""Examples for the checks of a loss and of views."""


_COUNTED = 100_000
"""Examples from which a task's constant is found: its error is less than any eval split shows."""


class TrainingContext:
    """The data, model and length of a training, as TFX passes them: checked and loaded."""

    def __init__(self, fn_args: Any, settings: TrainingSettings):
        """Reads the schema and the transform graph, and counts the examples.

        Call it after TensorFlow's devices are set.
        """
        self.transform = tft.TFTransformOutput(fn_args.transform_graph_path)
        settings = input_data.fitted(settings, fn_args.train_files, self.transform)
        self.settings = settings
        """The settings, with a task that knows what Transform found."""
        train = settings.train
        self._train, self._train_files = train, fn_args.train_files
        self._eval_files, self._batch_size = fn_args.eval_files, train.eval_batch_size
        optimizer: Optimizer = registries.OPTIMIZERS.get(train.optimizer)
        optimizer.verify(train)
        self.task, self.schema_path = settings.task.found, fn_args.schema_path
        input_data.check_features(self.transform, self.task)
        arguments = self.task.model_arguments(self.schema_path)
        count = input_data.count_examples
        self.examples = {"train": count(fn_args.train_files), "val": count(fn_args.eval_files)}
        self.total = train.total_steps(self.examples["train"])
        try:
            rules.check_watched(self.total, settings.parallel)
            train.check_length(self.total)
        except ValueError as error:
            raise UserError(str(error)) from None
        self.loaded: Loaded | None = None
        """The initial weights, after the model was built; None: random ones."""
        self._arguments = arguments
        self.precision = settings.parallel.definite.precision
        """Of models that are built from now on."""
        self.checkpoints = fn_args.working_dir or os.path.join(fn_args.model_run_dir, "checkpoints")

    def build_model(self, scope: AbstractContextManager[Any] | None = None) -> keras.Model:
        """Builds the model in a strategy's scope."""
        return assemble(
            self._train,
            self._arguments,
            scope,
            self.precision,
            on_loaded=self._note_loaded,
            task=self.task,
            adapt_to=self._first_inputs,
            transform=self.transform,
        )

    def build_blank(
        self, scope: AbstractContextManager[Any] | None = None, precision: str | None = None
    ) -> keras.Model:
        """Builds the model without initial or adapted weights, for code that assigns others."""
        train = self._train.without_initial_weights()
        precision = precision or self.precision
        return assemble(train, self._arguments, scope, precision, task=self.task)

    def check_loss(self) -> None:
        """Checks a loss of ``train.loss`` on the first examples and a new model.

        Raises:
            UserError: the loss fails, or the loss of an example depends on the others.
        """
        if self._train.loss == "task":
            return
        batch, outputs = self._first_outputs()
        check_loss(self.task, self._train, outputs, batch.targets)

    def check_constant(self) -> None:
        """Checks the task's constant on the first examples: a failing export would come too late.

        Raises:
            SettingError: its outputs are none that the loss or the metric takes.
        """
        constant = self.task.constant()
        if constant is None:
            return
        batch = input_data.first(self._train_files, self.transform, _CHECKED, self.task)
        weights = self.task.comparison_weights(batch)
        losses = make_loss(self.task, self._train)
        try:
            outputs = constant.outputs(constant.sums(batch.targets, weights).numpy(), batch.targets)
            values = self.task.decisive_values(losses, outputs, batch.targets, tf.float32)
            checks.rows(f"the comparison with the constant of {self.task.name}", values, weights)
        except UserError:
            raise
        except Exception as error:  # whatever the user's task raises
            raise SettingError(
                "task.name",
                self.task.name,
                f"has a constant that its loss or metric does not take: {said(error)}",
                "a method constant that returns None",
            ) from error

    def check_views(self) -> None:
        """Checks that the export can average the views of ``train.test_time_augment``.

        Raises:
            SettingError: it cannot.
        """
        if self._train.test_time_augment is not None:
            specs = self.task.input_specs(self._arguments)
            _, outputs = self._first_outputs()
            test_time_augmentation.verify(self._train.test_time_augment, self.task, specs, outputs)

    def constant_sums(self) -> np.ndarray | None:
        """The sums of ``Task.constant`` over the train split; None: the task has no constant.

        Of a large split, it reads the first examples: an ExampleGen shuffles.
        """
        constant = self.task.constant()
        if constant is None:
            return None
        sums = input_data.of_first(
            self._train_files,
            self.transform,
            _COUNTED,
            self._batch_size,
            self.task,
            lambda batch: constant.sums(batch.targets, self.task.comparison_weights(batch)),
        )
        return np.sum(list(sums.as_numpy_iterator()), axis=0)

    def _first_outputs(self) -> tuple[Batch, Nest]:
        """The first examples, and a new model's outputs for them."""
        batch = input_data.first(self._train_files, self.transform, _CHECKED, self.task)
        return batch, self.build_blank()(batch.inputs, training=False)

    def _first_inputs(self) -> Nest:
        """The first inputs in the order of the files: every process reads the same."""
        specs = tf.nest.flatten(self.task.input_specs(self._arguments))
        count = adapting.count(*(spec.shape for spec in specs))
        return input_data.first(self._train_files, self.transform, count, self.task).inputs

    def _note_loaded(self, loaded: Loaded) -> None:
        self.loaded = loaded

    def continue_from(self, weights: str | None, engine: Engine) -> None:
        """Gives the engine the state of the training whose weights it has, if it was kept.

        Raises:
            InitialWeightsError: the state is of another optimizer or model, or unreadable.
        """
        found = source.find(weights or "")
        if found.kind is not source.Kind.CHECKPOINT:
            note_weights(
                f"The optimizer's state is new, because {weights} has none: its training ran "
                "without train.warm_start.optimizer_state: true"
            )
            return
        moves = self.loaded.moves if self.loaded else {}
        try:
            before = checkpoint_files.read(found.path.resolve())
            engine.continue_from(before.state, moves)
        except (checkpoint_files.UnreadableCheckpointError, ValueError) as error:
            raise source.InitialWeightsError(
                found.path,
                f"its state cannot be continued: {said(error)}; use the same optimizer and model, "
                "or train.warm_start.optimizer_state: false",
            ) from None

    def epochs(self, steps: int) -> int:
        """The passes over the train split that ``steps`` begin."""
        return -(-steps * self._train.batch_size // max(self.examples["train"], 1))

    def keep_state(self, model: str, state: dict[str, np.ndarray], steps_before: int) -> None:
        """Writes the state of the exported step next to the SavedModel, for a later warm start.

        Args:
            model: folder of the SavedModel.
            state: of the engine.
            steps_before: steps of the trainings that this one continues.
        """
        folder = pathlib.Path(model).parent / source.TRAINING_STATE
        step = int(state["step"])
        with atomic_folder(folder / str(step)) as aside:
            total = {**state, "step": np.int64(step + steps_before)}
            checkpoint_files.write(pathlib.Path(aside), total, {"step": step, "finished": True})
        transform_graph_match.keep(self.transform, folder)

    def val_data(self, devices: Topology) -> Any | None:
        """The val split; None if it has no examples."""
        if not self.examples["val"]:
            return None
        batch_size = devices.fitting_batch(self._batch_size)
        return input_data.eval_dataset(
            self._eval_files, self.transform, batch_size, devices.rows, self.task
        )
