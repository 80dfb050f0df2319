"""The pipeline: ExampleGen to TrainingReport, one component after the other."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from tfx.components.schema_gen.component import SchemaGen
from tfx.components.statistics_gen.component import StatisticsGen
from tfx.components.transform.component import Transform
from tfx.dsl.components.common.resolver import Resolver, ResolverStrategy
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.orchestration.pipeline import Pipeline
from tfx.proto.pusher_pb2 import PushDestination
from tfx.proto.transform_pb2 import SplitsConfig
from tfx.types import standard_artifacts
from tfx.types.channel import Channel

from stagecraft.components import (
    AnomalyGate,
    Evaluator,
    ImportSchema,
    LatestBlessedBaseline,
    ParityGate,
    Pusher,
    Trainer,
    TrainingReport,
)
from stagecraft.components.pusher import owner
from stagecraft.pipeline import data
from stagecraft.pipeline.beam import beam_args
from stagecraft.pipeline.checks import model_arguments
from stagecraft.pipeline.evaluation import eval_config
from stagecraft.pipeline.local import layout, ownership
from stagecraft.pipeline.settings import PipelineSettings, changes_as_yaml
from stagecraft.schemas import features
from stagecraft.trainer_module.models import registry


class Places(NamedTuple):
    """Folders of a pipeline: paths, or addresses of an object store."""

    pipeline_root: str
    checkpoints: str
    serving: str
    """Numbered versions of the model."""

    metadata_db: str | None = None
    """ML Metadata's SQLite file; None if the runner has a store of its own."""


def create_pipeline(settings: PipelineSettings, output: str | pathlib.Path) -> Pipeline:
    """Builds the TFX pipeline for settings, with all its files in one folder.

    Args:
        output: folder for ``pipeline_root``, ``metadata.db``, ``checkpoints``, and ``serving``
            (unless ``push.directory`` names another).

    Raises:
        UserError: a named module or file does not exist; or the folder, or that of the served
            models, is another pipeline's.
    """
    output = pathlib.Path(output).resolve()
    ownership.check(settings, output)
    places = Places(
        pipeline_root=str(layout.pipeline_root(output)),
        checkpoints=str(layout.checkpoints(output)),
        serving=layout.serving(output, settings.push.directory),
        metadata_db=str(layout.metadata_db(output)),
    )
    return assemble(settings, places)


@registry.files_shared()
def assemble(
    settings: PipelineSettings,
    places: Places,
    parameters: Mapping[str, RuntimeParameter] | None = None,
    baseline_strategy: type[ResolverStrategy] = LatestBlessedBaseline,
) -> Pipeline:
    """Builds the TFX pipeline for settings.

    Args:
        parameters: runtime parameters by flat name: ``data_source``, and settings of the training
            such as ``train_epochs``.
        baseline_strategy: finds the model to compare a new one with. Only LatestBlessedBaseline
            takes the new model as its input.

    Raises:
        UserError: a named module or file does not exist.
    """
    varied = dict(parameters or {})
    task, splits = settings.task.found, settings.data.splits
    example_gen = data.example_gen(settings, varied.pop("data_source", settings.data.source))
    examples = example_gen.outputs["examples"]

    statistics_gen = StatisticsGen(examples=examples, stats_options=data.stats_options(task))
    schema_node = (
        SchemaGen(statistics=statistics_gen.outputs["statistics"], exclude_splits=splits[1:])
        if settings.schema_path is None
        else ImportSchema(schema_file=settings.schema_path)
    )
    schema = schema_node.outputs["schema"]
    anomaly_gate = AnomalyGate(
        examples=examples,
        statistics=statistics_gen.outputs["statistics"],
        schema=schema,
        pictures=set(features.ALL) <= set(task.schema_features),
    )

    train_split, val_split, eval_split = splits
    preprocessing_fn, transform_config = data.preprocessing(settings)
    transform = Transform(
        examples=examples,
        schema=schema,
        preprocessing_fn=preprocessing_fn,
        custom_config=transform_config,
        splits_config=SplitsConfig(
            analyze=[train_split],
            transform=[train_split, val_split] if settings.transform.materialize else [],
        ),
        materialize=settings.transform.materialize,
        disable_statistics=True,
    )
    transform.add_upstream_node(anomaly_gate)

    training_examples = (
        transform.outputs["transformed_examples"] if settings.transform.materialize else examples
    )
    arguments = model_arguments.find(settings)
    trainer = Trainer(
        examples=training_examples,
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        settings=settings,
        checkpoint_root=places.checkpoints,
        model_arguments=arguments,
        splits=(train_split, val_split),
        **varied,
    )
    model = trainer.outputs["model"]
    gates = []
    if settings.parity.enabled:
        parity_gate = ParityGate(
            examples=training_examples,
            transform_graph=transform.outputs["transform_graph"],
            schema=schema,
            settings=settings,
            steps=settings.parity.steps,
            batch_size=settings.parity.batch_size,
            timeout_seconds=settings.parity.timeout_seconds,
            model_arguments=arguments,
            split=train_split,
        )
        trainer.add_upstream_node(parity_gate)
        gates.append(parity_gate)

    candidate = {"candidate": model} if baseline_strategy is LatestBlessedBaseline else {}
    baseline = Resolver(
        strategy_class=baseline_strategy,
        **candidate,
        model=Channel(type=standard_artifacts.Model),
        model_blessing=Channel(type=standard_artifacts.ModelBlessing),
    ).with_id("Baseline")
    evaluator = Evaluator(
        examples=examples,
        model=model,
        baseline_model=baseline.outputs["model"],
        example_splits=[eval_split],
        eval_config=eval_config(settings.evaluate, settings.task, settings.schema_path),
        schema=schema,
    )
    pusher = Pusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        push_destination=PushDestination(
            filesystem=PushDestination.Filesystem(base_directory=places.serving)
        ),
        custom_config={owner.PUSHED_BY: dict(ownership.owner_of(settings))},
    )

    last = []
    if settings.report.enabled:
        report = TrainingReport(
            examples=examples,
            schema=schema,
            model=model,
            model_run=trainer.outputs["model_run"],
            evaluation=evaluator.outputs["evaluation"],
            blessing=evaluator.outputs["blessing"],
            pushed_model=pusher.outputs["pushed_model"],
            statistics=statistics_gen.outputs["statistics"],
            anomalies=anomaly_gate.outputs["anomalies"],
            transform_graph=transform.outputs["transform_graph"],
            parity=gates[0].outputs["report"] if gates else None,
            pipeline_name=settings.name,
            settings=changes_as_yaml(settings),
            metadata_db=places.metadata_db or "",
        )
        last.append(report)

    return Pipeline(
        pipeline_name=settings.name,
        pipeline_root=places.pipeline_root,
        metadata_connection_config=(
            sqlite_metadata_connection_config(places.metadata_db) if places.metadata_db else None
        ),
        components=[
            example_gen,
            statistics_gen,
            schema_node,
            anomaly_gate,
            transform,
            *gates,
            trainer,
            baseline,
            evaluator,
            pusher,
            *last,
        ],
        beam_pipeline_args=beam_args(settings.beam),
        enable_cache=True,
    )
