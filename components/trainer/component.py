"""Trainer: trains a model on a topology; every setting is a typed execution property.

TFX's own Trainer has all settings in one JSON text, so that a compiled pipeline cannot vary one. It
knows ``run_fn`` only by name, so that changed code gets old results from the cache.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from stagecraft.common.errors import SettingError
from stagecraft.components.fingerprints import training_properties
from stagecraft.components.fingerprints.training_properties import fingerprints
from stagecraft.components.interface import channels, parameters
from stagecraft.components.trainer.executor import (
    BASE_MODEL,
    DEFAULT_SPLITS,
    HYPERPARAMETERS,
    Executor,
)
from stagecraft.trainer_module.data.tasks.task import ModelArguments
from stagecraft.trainer_module.settings import TrainingSettings

RUN_FN = "stagecraft.trainer_module.run_fn.run_fn"


class TrainerSpec(component_spec.ComponentSpec):
    """Interface of Trainer."""

    PARAMETERS = {
        **training_properties.parameters(),
        **parameters(run_fn=str, checkpoint_root=str),
        **parameters(optional=True, splits=str),
    }
    INPUTS = training_properties.INPUTS | channels(
        optional=True,
        **{
            HYPERPARAMETERS: standard_artifacts.HyperParameters,
            BASE_MODEL: standard_artifacts.Model,
        },
    )
    OUTPUTS = channels(model=standard_artifacts.Model, model_run=standard_artifacts.ModelRun)


class Trainer(base_component.BaseComponent):
    """Trains on the split train, selects on val; outputs ``model`` and ``model_run``."""

    SPEC_CLASS = TrainerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel,
        schema: types.BaseChannel,
        settings: TrainingSettings,
        checkpoint_root: str,
        run_fn: str = RUN_FN,
        model_arguments: ModelArguments | None = None,
        splits: tuple[str, str] = DEFAULT_SPLITS,
        hyperparameters: types.BaseChannel | None = None,
        base_model: types.BaseChannel | None = None,
        **overrides: Any,
    ):
        """Configures a training.

        Args:
            examples: Examples with the splits train and val, raw or as Transform materialised them.
            transform_graph: Transform's graph; becomes a part of the exported model.
            checkpoint_root: folder that outlives a failed attempt. Each training has its own
                subfolder, named by data, code and ``train.resume_id``.
            run_fn: dotted path of the function that trains. The cache key includes this code and
                the user's code that it imports. For a model ``package.module:function``, it also
                includes the module and the files that the function reads; to find these files, the
                constructor builds the model.
            model_arguments: arguments of the model's function, to find the files that it reads:
                ``{"input_shape": (64, 64, 3), "num_classes": 7}``. None: those of the task's
                sample. The training itself takes them from ``schema``.
            splits: names of the splits to train on, and to select the best checkpoint on.
            hyperparameters: ``best_hyperparameters`` of TFX's Tuner, whose values replace the
                settings of their names, such as ``parallel.stages``.
            base_model: the model that the training continues; a channel without an artifact: it
                starts from random weights. Needs ``train.initial_weights``: ``last_blessed``,
                ``last_pushed`` or ``run:ID``; see :class:`~stagecraft.components.BaseModel`.
            **overrides: flat settings (``train_learning_rate=…``) in place of those in
                ``settings``; a RuntimeParameter is allowed; the Trainer checks its value at run
                time. The cache key then misses the code of a model named at run time.

        Raises:
            TypeError: an override is not a setting.
            UserError: ``run_fn``, the model's module or ``train.initial_weights`` does not exist;
                or ``train.initial_weights`` names no model of a run, but there is ``base_model``,
                or the other way round.
        """
        for name in overrides:
            if name not in TrainerSpec.PARAMETERS:
                near = difflib.get_close_matches(name, TrainerSpec.PARAMETERS, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise TypeError(f"Trainer: {name} is not a setting{hint}")
        flat = settings.flat() | overrides
        if (base_model is None) is not (settings.train.base_model is None):
            raise SettingError(
                "train.initial_weights",
                settings.train.initial_weights,
                "does not fit the Trainer's input base_model",
                "both, or neither: last_blessed, last_pushed or run:ID, and a BaseModel resolver",
            )
        super().__init__(
            TrainerSpec(
                examples=examples,
                transform_graph=transform_graph,
                schema=schema,
                model=types.Channel(type=standard_artifacts.Model),
                model_run=types.Channel(type=standard_artifacts.ModelRun),
                run_fn=run_fn,
                checkpoint_root=checkpoint_root,
                **({} if splits == DEFAULT_SPLITS else {"splits": json.dumps(splits)}),
                **({} if hyperparameters is None else {HYPERPARAMETERS: hyperparameters}),
                **({} if base_model is None else {BASE_MODEL: base_model}),
                **fingerprints([run_fn], flat, model_arguments),
                **flat,
            )
        )
