"""The pipeline: ExampleGen to TrainingReport, one component after the other."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2
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
    Cifar10ExampleGen,
    Evaluator,
    ImportSchema,
    LatestBlessedBaseline,
    ParityGate,
    Pusher,
    Trainer,
    TrainingReport,
)
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.pipeline.beam import beam_args
from stagecraft.pipeline.evaluation import eval_config
from stagecraft.pipeline.local import layout
from stagecraft.pipeline.settings import PipelineSettings, changes_as_yaml
from stagecraft.schemas import features
from stagecraft.trainer_module.models import registry

PREPROCESSING_FN = "stagecraft.trainer_module.preprocessing.preprocessing_fn"


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
        UserError: a named module or file does not exist.
    """
    output = pathlib.Path(output).resolve()
    places = Places(
        pipeline_root=str(layout.pipeline_root(output)),
        checkpoints=str(layout.checkpoints(output)),
        serving=str(pathlib.Path(settings.push.directory or layout.serving(output)).absolute()),
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
    example_gen = Cifar10ExampleGen(
        source=varied.pop("data_source", settings.data.source),
        dataset=settings.data.dataset_name,
        val_fraction=settings.data.val_fraction,
        shards=settings.data.shards,
        sample_train=settings.data.sample_train,
        sample_test=settings.data.sample_test,
        cache_dir=settings.data.cache_dir,
    )
    examples = example_gen.outputs["examples"]

    statistics_gen = StatisticsGen(examples=examples, stats_options=_stats_options())
    import_schema = ImportSchema(schema_file=settings.data.schema_path)
    schema = import_schema.outputs["schema"]
    anomaly_gate = AnomalyGate(
        examples=examples, statistics=statistics_gen.outputs["statistics"], schema=schema
    )

    transform = Transform(
        examples=examples,
        schema=schema,
        preprocessing_fn=PREPROCESSING_FN,
        # TFX's cache key has only the dotted path; it needs the code, too.
        custom_config={"code_fingerprint": code_fingerprint(PREPROCESSING_FN)},
        splits_config=SplitsConfig(
            analyze=[features.TRAIN],
            transform=[features.TRAIN, features.VAL] if settings.transform.materialize else [],
        ),
        materialize=settings.transform.materialize,
        disable_statistics=True,
    )
    transform.add_upstream_node(anomaly_gate)

    training_examples = (
        transform.outputs["transformed_examples"] if settings.transform.materialize else examples
    )
    arguments = settings.task.found.model_arguments(settings.data.schema_path)
    trainer = Trainer(
        examples=training_examples,
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        settings=settings,
        checkpoint_root=places.checkpoints,
        model_arguments=arguments,
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
        example_splits=[features.EVAL],
        eval_config=eval_config(settings.evaluate, settings.task, settings.data.schema_path),
        schema=schema,
    )
    pusher = Pusher(
        model=model,
        model_blessing=evaluator.outputs["blessing"],
        push_destination=PushDestination(
            filesystem=PushDestination.Filesystem(base_directory=places.serving)
        ),
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
            import_schema,
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


def _stats_options() -> tfdv.StatsOptions:
    """Options that tell TFDV which feature holds images, whose values it then does not count."""
    image = schema_pb2.Feature(
        name=features.IMAGE, type=schema_pb2.BYTES, image_domain=schema_pb2.ImageDomain()
    )
    return tfdv.StatsOptions(schema=schema_pb2.Schema(feature=[image]))
