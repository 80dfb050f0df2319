"""The pipeline: one component after the other. Add yours, or replace one."""

from typing import Any

from stagecraft.components import (
    AnomalyGate,
    Evaluator,
    ImportSchema,
    LatestBlessedBaseline,
    Pusher,
    Trainer,
    TrainingReport,
)
from stagecraft.pipeline import (
    PipelineSettings,
    beam_args,
    eval_config,
    example_gen_of,
    model_arguments,
    preprocessing_of,
)
from tfx import v1 as tfx


def create_pipeline(
    settings: PipelineSettings,
    *,
    pipeline_root: str,
    serving_model_dir: str,
    checkpoint_root: str,
    metadata_path: str | None = None,
    data_source: tfx.dsl.experimental.RuntimeParameter | None = None,
    is_vertex: bool = False,
    **parameters: Any,
) -> tfx.dsl.Pipeline:
    """Creates the pipeline.

    Args:
        settings: the settings of all components.
        pipeline_root: folder or address of the artifacts.
        serving_model_dir: folder or address of numbered model versions.
        checkpoint_root: folder of checkpoints; it survives a failed training.
        metadata_path: ML Metadata's SQLite file; None if the runner has its own store.
        data_source: a runtime parameter in place of ``data.source`` of the settings.
        is_vertex: leave out what Vertex AI does not support.
        **parameters: runtime parameters in place of settings of the Trainer.
    """
    train_split, val_split, eval_split = settings.data.splits

    # Reads the data that the section "data:" of the settings names.
    example_gen = example_gen_of(settings, data_source)
    examples = example_gen.outputs["examples"]

    statistics_gen = tfx.components.StatisticsGen(examples=examples)
    if settings.schema_path is None:
        schema_gen = tfx.components.SchemaGen(
            statistics=statistics_gen.outputs["statistics"], exclude_splits=[val_split, eval_split]
        )
    else:
        schema_gen = ImportSchema(schema_file=settings.schema_path)
    schema = schema_gen.outputs["schema"]

    # Stops the pipeline if the data do not match the schema.
    anomaly_gate = AnomalyGate(
        examples=examples,
        statistics=statistics_gen.outputs["statistics"],
        schema=schema,
        pictures="image" in settings.task.found.schema_features,
    )

    preprocessing_fn, custom_config = preprocessing_of(settings)
    transform = tfx.components.Transform(
        examples=examples,
        schema=schema,
        preprocessing_fn=preprocessing_fn,
        custom_config=custom_config,
        # Training transforms the raw examples on the fly.
        splits_config=tfx.proto.SplitsConfig(analyze=[train_split]),
        materialize=False,
        disable_statistics=True,
    )
    transform.add_upstream_node(anomaly_gate)

    trainer = Trainer(
        examples=examples,
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        settings=settings,
        checkpoint_root=checkpoint_root,
        model_arguments=model_arguments(settings),
        splits=(train_split, val_split),
        **parameters,
    )
    model = trainer.outputs["model"]

    # The last blessed model, if any: the new model must not be worse.
    candidate = {} if is_vertex else {"candidate": model}
    baseline = tfx.dsl.Resolver(
        strategy_class=(
            tfx.dsl.experimental.LatestBlessedModelStrategy if is_vertex else LatestBlessedBaseline
        ),
        **candidate,
        model=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Model),
        model_blessing=tfx.dsl.Channel(type=tfx.types.standard_artifacts.ModelBlessing),
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
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=serving_model_dir)
        ),
    )
    components = [
        *(example_gen, statistics_gen, schema_gen, anomaly_gate, transform),
        *(trainer, baseline, evaluator, pusher),
    ]

    if not is_vertex:
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
            pipeline_name=settings.name,
            metadata_db=metadata_path or "",
        )
        components.append(report)

    return tfx.dsl.Pipeline(
        pipeline_name=settings.name,
        pipeline_root=pipeline_root,
        metadata_connection_config=(
            tfx.orchestration.metadata.sqlite_metadata_connection_config(metadata_path)
            if metadata_path
            else None
        ),
        components=components,
        beam_pipeline_args=beam_args(settings.beam),
        enable_cache=True,
    )
