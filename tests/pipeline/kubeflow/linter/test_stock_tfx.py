"""What TFX's own Kubeflow runner writes, and all that keeps the backend from running it."""

import json
from collections import Counter

import pytest

from stagecraft.pipeline.kubeflow.linter import check

WITH_INPUTS = 6
"""StatisticsGen, SchemaGen, Transform, Trainer, Evaluator, Pusher; ExampleGen has none."""

ALWAYS = {
    "executor-kind": 2,  # a LatestBlessedModelStrategy is two resolvers
    "tfx-input-type": WITH_INPUTS,
    "tfx-uri": 1,
    "lifecycle-ignored": 1,
}
EXPECTED = {
    # under 2.0 no constant is one: each parameter of each task is refused
    ("2.0", "json"): {"pipeline-job": 1, "schema-version": 1, "runtime-value": ...},
    ("2.0", "yaml"): {"schema-version": 1, "runtime-value": ...},
    ("2.1", "json"): {"pipeline-job": 1},
    ("2.1", "yaml"): {},
}
EXPECTED["2.0", "json"] |= {"parameter-type": 2}


def _pipeline(*, resolver_id="blessed", runtime_parameter=True):
    import tensorflow_model_analysis as tfma
    from tfx import v1 as tfx

    custom_config = None
    if runtime_parameter:
        parameter = tfx.dsl.experimental.RuntimeParameter
        custom_config = parameter(name="custom", ptype=str, default="{}")
    blessed = tfx.dsl.experimental.LatestBlessedModelStrategy
    example_gen = tfx.components.CsvExampleGen(input_base="/data")
    examples = example_gen.outputs["examples"]
    statistics = tfx.components.StatisticsGen(examples=examples)
    schema = tfx.components.SchemaGen(statistics=statistics.outputs["statistics"])
    transform = tfx.components.Transform(
        examples=examples, schema=schema.outputs["schema"], preprocessing_fn="module.function"
    )
    trainer = tfx.components.Trainer(
        run_fn="module.run",
        custom_config=custom_config,
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        train_args=tfx.proto.TrainArgs(num_steps=1),
        eval_args=tfx.proto.EvalArgs(num_steps=1),
    )
    resolver = tfx.dsl.Resolver(
        strategy_class=blessed,
        model=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Model),
        model_blessing=tfx.dsl.Channel(type=tfx.types.standard_artifacts.ModelBlessing),
    ).with_id(resolver_id)
    evaluator = tfx.components.Evaluator(
        examples=examples,
        model=trainer.outputs["model"],
        baseline_model=resolver.outputs["model"],
        eval_config=tfma.EvalConfig(),
    )
    destination = tfx.proto.PushDestination.Filesystem(base_directory="/served")
    pusher = tfx.components.Pusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        push_destination=tfx.proto.PushDestination(filesystem=destination),
    )
    nodes = [example_gen, statistics, schema, transform, trainer, resolver, evaluator, pusher]
    return tfx.dsl.Pipeline(pipeline_name="stock", pipeline_root="/root", components=nodes)


def _dynamic_pipeline():
    """A number made by one task is an execution property of another."""
    from tfx import v1 as tfx
    from tfx.dsl.component.experimental import container_component, placeholders

    make = container_component.create_container_component(
        name="Make",
        image="busybox",
        command=["make"],
        outputs={"number": tfx.types.standard_artifacts.Integer},
    )()
    use = container_component.create_container_component(
        name="Use",
        image="busybox",
        command=["use", placeholders.InputValuePlaceholder("number")],
        parameters={"number": int},
    )(number=make.outputs["number"].future()[0].value)
    return tfx.dsl.Pipeline(pipeline_name="dynamic", pipeline_root="/root", components=[make, use])


def _compile(folder, pipeline, version, extension):
    from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner as runner

    config = runner.KubeflowV2DagRunnerConfig(
        default_image="registry/image:1", use_pipeline_spec_2_1=version == "2.1"
    )
    name = f"compiled.{extension}"
    runner.KubeflowV2DagRunner(config, output_dir=str(folder), output_filename=name).run(pipeline)
    return (folder / name).read_text()


@pytest.mark.parametrize(("version", "extension"), EXPECTED)
def test_exactly_these_rules(tmp_path, version, extension):
    # TFX 2.0 YAML and run-time parameters: see test_two_formats_that_exclude_each_other
    pipeline = _pipeline(runtime_parameter=(version, extension) != ("2.0", "yaml"))
    text = _compile(tmp_path, pipeline, version, extension)
    found = check(text)
    expected = ALWAYS | EXPECTED[version, extension]
    if expected.get("runtime-value") is ...:
        expected["runtime-value"] = text.count("constantValue")
        assert expected["runtime-value"] > 15
    assert Counter(finding.rule for finding in found) == expected
    prefixed = all(
        finding.location.startswith("pipelineSpec.") for finding in found[extension == "json" :]
    )
    assert prefixed == (extension == "json")


def test_an_id_with_an_underscore_is_no_name_for_argo(tmp_path):
    """As in TFX's own template: latest_blessed_model_resolver."""
    text = _compile(tmp_path, _pipeline(resolver_id="latest_blessed"), "2.1", "yaml")
    named = {finding.location for finding in check(text) if finding.rule == "argo-name"}
    assert named == {
        "root.dag.tasks.latest_blessed-model-resolver",
        "root.dag.tasks.latest_blessed-model-blessing-resolver",
    }


def test_two_formats_that_exclude_each_other(tmp_path):
    """TFX itself cannot write a run-time parameter into 2.0 YAML."""
    with pytest.raises(KeyError, match="parameterType"):
        _compile(tmp_path, _pipeline(), "2.0", "yaml")


def test_a_dynamic_execution_property(tmp_path):
    text = _compile(tmp_path, _dynamic_pipeline(), "2.1", "yaml")
    rules = {finding.rule: finding for finding in check(text)}
    assert rules.keys() == {"unknown-producer"}
    assert rules["unknown-producer"].remedy.startswith("Write 'Make'")


def test_the_job_of_the_json_is_the_spec_of_the_yaml(tmp_path):
    job = json.loads(_compile(tmp_path, _pipeline(), "2.1", "json"))
    inner = check(json.dumps(job["pipelineSpec"]))
    assert inner == check(_compile(tmp_path, _pipeline(), "2.1", "yaml"))
