"""The user's pipeline; nothing in it knows of Stagecraft."""

import tensorflow_model_analysis as tfma
from google.protobuf.wrappers_pb2 import DoubleValue
from tensorflow_model_analysis.proto import config_pb2
from tfx import v1 as tfx

assert tfma  # registers metrics


def create_pipeline(data: str, root: str, serving: str, resolver: bool = True):
    """CsvExampleGen to Pusher; ``resolver``: compares with the latest blessed model."""
    steps = tfx.dsl.experimental.RuntimeParameter(
        "train_args", str, default='{"num_steps": 30, "splits": ["train"]}'
    )
    example_gen = tfx.components.CsvExampleGen(input_base=data)
    statistics_gen = tfx.components.StatisticsGen(examples=example_gen.outputs["examples"])
    schema_gen = tfx.components.SchemaGen(statistics=statistics_gen.outputs["statistics"])
    transform = tfx.components.Transform(
        examples=example_gen.outputs["examples"],
        schema=schema_gen.outputs["schema"],
        preprocessing_fn="csv_model.preprocessing_fn",
    )
    trainer = tfx.components.Trainer(
        run_fn="csv_model.run_fn",
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        schema=schema_gen.outputs["schema"],
        train_args=steps,
        eval_args=tfx.proto.EvalArgs(num_steps=1),
    )
    nodes = [example_gen, statistics_gen, schema_gen, transform, trainer]
    baseline = {}
    if resolver:
        latest = tfx.dsl.Resolver(
            strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
            model=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Model),
            model_blessing=tfx.dsl.Channel(type=tfx.types.standard_artifacts.ModelBlessing),
        ).with_id("latest_blessed_model_resolver")
        baseline = {"baseline_model": latest.outputs["model"]}
        nodes.append(latest)
    evaluator = tfx.components.Evaluator(
        examples=example_gen.outputs["examples"],
        model=trainer.outputs["model"],
        eval_config=_eval_config(),
        **baseline,
    )
    pusher = tfx.components.Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=tfx.proto.PushDestination(
            filesystem=tfx.proto.PushDestination.Filesystem(base_directory=serving)
        ),
    )
    return tfx.dsl.Pipeline(
        pipeline_name="points",
        pipeline_root=root,
        components=[*nodes, evaluator, pusher],
        enable_cache=True,
        beam_pipeline_args=["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"],
    )


def _eval_config():
    at_least_one = config_pb2.MetricThreshold(
        value_threshold=config_pb2.GenericValueThreshold(lower_bound=DoubleValue(value=1.0))
    )
    count = config_pb2.MetricConfig(class_name="ExampleCount", threshold=at_least_one)
    return config_pb2.EvalConfig(
        model_specs=[
            config_pb2.ModelSpec(
                signature_name="serving_default", label_key="above", prediction_key="probability"
            )
        ],
        slicing_specs=[config_pb2.SlicingSpec()],
        metrics_specs=[config_pb2.MetricsSpec(metrics=[count])],
    )
