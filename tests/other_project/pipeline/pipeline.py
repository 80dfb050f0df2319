"""Somebody's pipeline: components of TFX and of stagecraft, with their own model."""

from tfx import v1 as tfx

from pipeline import configs
from stagecraft.components import AnomalyGate, Cifar10ExampleGen, ImportSchema, Trainer
from stagecraft.pipeline import TrainingSettings, features


def create_pipeline() -> tfx.dsl.Pipeline:
    example_gen = Cifar10ExampleGen(source="sample", sample_train=200, sample_test=50, shards=2)
    examples = example_gen.outputs["examples"]
    statistics_gen = tfx.components.StatisticsGen(examples=examples)
    import_schema = ImportSchema(schema_file=features.DATASETS["cifar10"].schema_file)
    schema = import_schema.outputs["schema"]
    gate = AnomalyGate(
        examples=examples, statistics=statistics_gen.outputs["statistics"], schema=schema
    )
    transform = tfx.components.Transform(
        examples=examples,
        schema=schema,
        preprocessing_fn=configs.PREPROCESSING_FN,
        splits_config=tfx.proto.SplitsConfig(analyze=["train"]),
        materialize=False,
        disable_statistics=True,
    )
    transform.add_upstream_node(gate)
    trainer = Trainer(
        examples=examples,
        transform_graph=transform.outputs["transform_graph"],
        schema=schema,
        settings=TrainingSettings(train={"model": configs.MODEL, "steps": configs.TRAIN_STEPS}),
        checkpoint_root=configs.CHECKPOINTS,
    )
    return tfx.dsl.Pipeline(
        pipeline_name=configs.PIPELINE_NAME,
        pipeline_root=configs.PIPELINE_ROOT,
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
            configs.METADATA_PATH
        ),
        components=[example_gen, statistics_gen, import_schema, gate, transform, trainer],
        beam_pipeline_args=["--runner=DirectRunner", "--direct_running_mode=in_memory"],
    )
