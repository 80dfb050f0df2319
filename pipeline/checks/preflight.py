"""Checks of a training, before the pipeline runs or is compiled; and its model."""

from __future__ import annotations

from contextlib import AbstractContextManager

import keras
import tensorflow as tf

from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.data import schema_reader
from stagecraft.trainer_module.data.tasks.task import ModelArguments
from stagecraft.trainer_module.models import blank
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.initial_weights.loading import Loaded
from stagecraft.trainer_module.models.layers import dropout
from stagecraft.trainer_module.parallel.topology import choose_devices
from stagecraft.trainer_module.pipeline_parallel import partition
from stagecraft.trainer_module.planning import planner
from stagecraft.trainer_module.settings import ParallelSettings
from stagecraft.trainer_module.tensor_parallel.model_shards import ModelShards


def check(settings: PipelineSettings) -> list[str]:
    """Builds the model on the host, and cuts it into its stages; returns notes about the model."""
    parallel = settings.parallel
    model, notes = build(settings, tf.device("CPU:0"))
    if parallel.found.resolves:
        return notes  # the topology is chosen where it trains
    cuts: list[str] = []
    if parallel.stages > 1 or parallel.memory_mb:
        # Costs choose the cuts, but do not decide whether the model can be cut.
        counted = parallel.model_copy(update={"costs": "flops"})
        devices = [f"CPU:{index}" for index in range(parallel.devices_per_worker)]
        counted_settings = settings.model_copy(update={"parallel": counted})
        cuts = planner.make_plan(model, counted_settings, devices).cuts
    if parallel.shards > 1:
        ModelShards(partition.split(model, cuts), parallel.shards)
    return notes


def model_arguments(settings: PipelineSettings) -> ModelArguments:
    """The arguments of the model's function, from which every command builds the model.

    They are the task's, from the schema: ``data.schema_file``, or the data set's schema. If the
    schema is inferred later, they are those that do not depend on it.
    """
    task, schema = settings.task.found, settings.schema_path
    if schema is None:
        arguments = task.sample_arguments
        assert arguments is not None, "the settings refuse this"
        return arguments
    if not task.is_table:  # which lists all that does not fit
        schema_reader.check_features(schema, task.schema_features)
    return task.model_arguments(schema)


def build(
    settings: PipelineSettings, scope: AbstractContextManager[object] | None = None
) -> tuple[keras.Model, list[str]]:
    """The model of some settings, with its variables in ``scope``; and notes about it."""
    loaded: list[Loaded] = []
    model = assemble(
        settings.train.from_files,
        model_arguments(settings),
        scope,
        settings.parallel.definite.precision,
        on_loaded=loaded.append,
        task=settings.task.found,
    )
    return model, [*(each.note() for each in loaded), *dropout.notes(model)]


def build_blank(settings: PipelineSettings) -> tuple[keras.Model, list[str]]:
    """The model of some settings, whose variables have no values; and notes about it."""
    train = settings.train.without_initial_weights()
    return build(settings.model_copy(update={"train": train}), blank.scope())


def check_devices(parallel: ParallelSettings) -> None:
    """Refuses devices that this machine does not have. Does not initialize them."""
    if not parallel.found.remote_devices:
        choose_devices(parallel)
