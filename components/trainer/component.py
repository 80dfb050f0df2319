"""Trainer: trains a model on a topology, with every setting a typed execution property.

TFX's own Trainer takes its settings as one JSON text, which a compiled pipeline
cannot vary, and knows its ``run_fn`` by name only, so that changed code finds
old results in the cache.
"""

from __future__ import annotations

import difflib
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from stagecraft.components.fingerprints import training_properties
from stagecraft.components.fingerprints.training_fingerprints import fingerprints
from stagecraft.components.trainer.executor import Executor
from stagecraft.trainer_module.settings import TrainingSettings

RUN_FN = "stagecraft.trainer_module.run_fn.run_fn"


class TrainerSpec(component_spec.ComponentSpec):
    """Interface of Trainer."""

    PARAMETERS = {
        **training_properties.parameters(),
        "run_fn": component_spec.ExecutionParameter(type=str),
        "checkpoint_root": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = training_properties.INPUTS
    OUTPUTS = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "model_run": component_spec.ChannelParameter(type=standard_artifacts.ModelRun),
    }


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
        num_classes: int | None = None,
        **overrides: Any,
    ):
        """Describes a training.

        Args:
            examples: Examples with the splits train and val, raw or as Transform materialised them.
            transform_graph: Transform's graph, which goes into the exported model.
            schema: the raw examples' schema, which names the classes.
            settings: what is trained, and on which topology.
            checkpoint_root: folder that outlives a failed attempt; each training has its own
                folder in it, by data, code and ``train.resume_id``.
            run_fn: dotted path of the function that trains. It and all of the user's code that it
                imports are part of the cache key, as are the module of a
                ``package.module:function`` model and the files that the function reads. To see
                which these are, the model is built here.
            num_classes: of the labels, for that; None: 10.
            **overrides: flat settings (``train_learning_rate=…``) in place of those in
                ``settings``; a RuntimeParameter is allowed, and checked when the Trainer runs (the
                code of a model that is only named then is not in the cache key).

        Raises:
            TypeError: an override that is no setting.
            UserError: ``run_fn``, the model's module or ``train.initial_weights`` is not found.
        """
        for name in overrides:
            if name not in TrainerSpec.PARAMETERS:
                near = difflib.get_close_matches(name, TrainerSpec.PARAMETERS, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise TypeError(f"Trainer: {name} is no setting{hint}")
        flat = settings.flat() | overrides
        super().__init__(
            TrainerSpec(
                examples=examples,
                transform_graph=transform_graph,
                schema=schema,
                model=types.Channel(type=standard_artifacts.Model),
                model_run=types.Channel(type=standard_artifacts.ModelRun),
                run_fn=run_fn,
                checkpoint_root=checkpoint_root,
                **fingerprints([run_fn], flat, num_classes),
                **flat,
            )
        )
