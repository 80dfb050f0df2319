"""The runner as a user of TFX meets it."""

import compiled_by
import pytest
import tiny_nodes
import yaml
from tfx.components.infra_validator.component import InfraValidator
from tfx.components.trainer.component import Trainer
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_artifact_strategy import LatestArtifactStrategy
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import KubeflowV2DagRunner
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import infra_validator_pb2, trainer_pb2
from tfx.types import standard_artifacts
from tfx.types.channel import Channel

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.linter import check
from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings


def test_it_is_one_of_tfx_own(tmp_path, monkeypatch):
    """The ``tfx`` command replaces ``run`` of the base class, and looks at what it is given."""
    seen = []
    compile_it = KubeflowV2DagRunner.run

    def replaced(self, pipeline, *args, **kwargs):
        seen.append((self.config.default_image, pipeline.pipeline_info.pipeline_name))
        self._output_dir = str(tmp_path / "elsewhere")
        return compile_it(self, pipeline, *args, **kwargs)

    monkeypatch.setattr(KubeflowV2DagRunner, "run", replaced)
    runner = KubeflowRunner(KubeflowSettings(image="registry/image:2"), str(tmp_path))
    assert isinstance(runner, KubeflowV2DagRunner)
    runner.run(tiny_nodes.pipeline())
    assert seen == [("registry/image:2", "tiny")]
    assert check((tmp_path / "elsewhere" / "pipeline.yaml").read_text()) == []


def test_nothing_is_compiled_where_the_command_only_looks(tmp_path, monkeypatch):
    monkeypatch.setattr(KubeflowV2DagRunner, "run", lambda *args, **kwargs: None)
    assert KubeflowRunner(output_dir=str(tmp_path)).run(tiny_nodes.pipeline()) is None
    assert list(tmp_path.iterdir()) == []


def test_what_people_see(tmp_path):
    rate = RuntimeParameter("rate", float, default=0.5)
    runner = KubeflowRunner(
        output_dir=str(tmp_path), descriptions={"rate": "how fast, in copies a second"}
    )
    compiled = runner.run(tiny_nodes.pipeline(rate=rate))
    assert compiled is not None
    spec = compiled["pipelineSpec"]
    assert spec["root"]["inputDefinitions"]["parameters"]["rate"] == {
        "parameterType": "NUMBER_DOUBLE",
        "defaultValue": 0.5,
        "description": "how fast, in copies a second",
    }
    text = (tmp_path / "pipeline.yaml").read_text()
    assert "#    rate: NUMBER_DOUBLE [Default: 0.5]" in text
    assert "&id" not in text, "YAML anchors"


def test_values_at_compile_time_are_the_defaults(tmp_path):
    rate = RuntimeParameter("rate", float, default=0.5)
    runner = KubeflowRunner(output_dir=str(tmp_path))
    compiled = runner.run(tiny_nodes.pipeline(rate=rate), {"rate": 0.25})
    assert compiled is not None
    inputs = compiled["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]
    assert inputs["rate"]["defaultValue"] == 0.25
    with pytest.raises(UserError, match="parameter_values"):
        runner.run(tiny_nodes.pipeline(rate=rate), {"speed": 1})


def test_the_pipeline_is_as_it_was(tmp_path):
    pipeline = compiled_by.points()
    before = [node.id for node in pipeline.components]
    first = compiled_by.ours(pipeline, tmp_path)
    assert [node.id for node in pipeline.components] == before
    assert compiled_by.ours(pipeline, tmp_path) == first


def test_an_edge_is_drawn_once(tmp_path):
    tasks = compiled_by.ours(compiled_by.points(), tmp_path)["pipelineSpec"]["root"]["dag"]["tasks"]
    for task in tasks.values():
        assert specs.producers(task).isdisjoint(task.get("dependentTasks", ()))
    assert specs.dependencies(tasks["Pusher"]) >= {"Evaluator", "Trainer"}


OWN = {("mlpipeline-minio-artifact", "AWS_ACCESS_KEY_ID")}
MINE = {("mine", "AWS_ACCESS_KEY_ID")}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, dict.fromkeys(("CsvExampleGen-inputs", "Evaluator", "Pusher"), OWN)),
        (
            {"every_step": {"secrets": [{"name": "mine", "key": "k", "env": "AWS_ACCESS_KEY_ID"}]}},
            dict.fromkeys(("CsvExampleGen-inputs", "Evaluator", "Pusher", "Trainer"), MINE),
        ),
        ({"every_step": {"env": {"AWS_PROFILE": "team"}}}, {}),
    ],
)
def test_steps_that_open_the_store_get_its_keys(tmp_path, settings, expected):
    compiled = compiled_by.ours(compiled_by.points(), tmp_path, **settings)
    found = _secrets(compiled)
    assert {name: found.get(name, set()) & (OWN | MINE) for name in expected} == expected
    if not settings:
        assert "Trainer" not in found, "the launcher brings and takes what it needs"
    assert expected or not found


def test_steps_whose_beam_workers_are_elsewhere_get_its_keys(tmp_path):
    pipeline = compiled_by.points()
    pipeline.beam_pipeline_args.extend(["--runner=FlinkRunner", "--environment_type=EXTERNAL"])
    found = _secrets(compiled_by.ours(pipeline, tmp_path))
    for name in ("CsvExampleGen", "Evaluator"):
        assert found[name] >= OWN
    assert "Trainer" not in found


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_store_without_keys_is_named(tmp_path, caplog, scheme):
    pipeline = compiled_by.points(f"{scheme}://data/points")
    compiled = compiled_by.ours(pipeline, tmp_path)
    assert f"{scheme}://" in caplog.text and "CsvExampleGen" in caplog.text
    assert "CsvExampleGen-inputs" not in _secrets(compiled)


def _secrets(compiled):
    """Name and variable of each secret, by step."""
    return {
        label.removesuffix("_executor"): {
            (secret["secretName"], pair["envVar"])
            for secret in entry["secretAsEnv"]
            for pair in secret["keyToEnv"]
        }
        for label, entry in compiled_by.pods(compiled).items()
        if "secretAsEnv" in entry
    }


def test_two_names_that_become_one(tmp_path):
    nodes = [tiny_nodes.Make().with_id(name) for name in ("a_b", "a.b")]
    with pytest.raises(UserError, match=r"'a[._]b' and 'a-b'") as caught:
        compiled_by.ours(Pipeline("two", "gs://bucket", components=nodes), tmp_path)
    assert caught.value.record == "two"


def _latest_artifact(folder):
    return Resolver(
        strategy_class=LatestArtifactStrategy,
        model=Channel(type=standard_artifacts.Model),
    ).with_id("warm_start")


def _infra_validator(folder):
    return InfraValidator(
        model=Channel(type=standard_artifacts.Model),
        serving_spec=infra_validator_pb2.ServingSpec(),
    )


def _module_file(folder):
    (folder / "mine.py").write_text("def run_fn(fn_args): pass\n")
    return Trainer(
        module_file=str(folder / "mine.py"),
        examples=Channel(type=standard_artifacts.Examples),
        train_args=trainer_pb2.TrainArgs(num_steps=1),
        eval_args=trainer_pb2.EvalArgs(num_steps=1),
    )


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (_latest_artifact, "warm_start"),
        (_infra_validator, "InfraValidator"),
        (_module_file, "Trainer"),
    ],
)
def test_a_node_without_support(tmp_path, node, name):
    pipeline = Pipeline("p", "gs://bucket", components=[tiny_nodes.Make(), node(tmp_path)])
    with pytest.raises(UserError) as caught:
        compiled_by.ours(pipeline, tmp_path)
    assert caught.value.record == name


def test_a_root_on_this_machine(tmp_path):
    with pytest.raises(UserError, match="defaultPipelineRoot"):
        compiled_by.ours(tiny_nodes.pipeline(root="/home/me/root"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    compiled_by.ours(tiny_nodes.pipeline(), tmp_path)
    before = (tmp_path / "ours.yaml").read_text()
    with pytest.raises(UserError):
        compiled_by.ours(tiny_nodes.pipeline(), tmp_path, steps={"Nobody": {}})
    assert (tmp_path / "ours.yaml").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["ours.yaml"]
    assert next(yaml.safe_load_all(before))["pipelineInfo"]["name"] == "tiny"


def test_a_class_of_the_script(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny_nodes.CopyExecutor, "__module__", "__main__")
    with pytest.raises(UserError) as caught:
        compiled_by.ours(tiny_nodes.pipeline(), tmp_path)
    assert caught.value.record == "Copy"


def test_a_container_of_the_users_keeps_its_image(tmp_path):
    from tfx.dsl.component.experimental import container_component

    say = container_component.create_container_component("Say", "alpine:3", ["echo", "said"])()
    pipeline = Pipeline("p", "gs://bucket", components=[say, tiny_nodes.Make()])
    compiled = compiled_by.ours(pipeline, tmp_path, every_step={"image": "mine:2"})
    images = {
        name: executor["container"]["image"]
        for name, executor in compiled["pipelineSpec"]["deploymentSpec"]["executors"].items()
    }
    assert images == {"Say_executor": "alpine:3", "Make_executor": "mine:2"}
