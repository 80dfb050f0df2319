"""Every step of the pipeline, with each of its inputs damaged in each way: none works on it."""

import collections
import contextlib
import pathlib
import time

import pytest
from damages import WAYS, files, fill
from tfx.dsl.compiler.compiler import Compiler
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable.data_types import ExecutionInfo
from tfx.proto.orchestration import execution_result_pb2
from tfx.types import standard_artifacts

from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.manifest import DamagedArtifactError
from stagecraft.components.parity_gate.component import ParityReport
from stagecraft.pipeline import settings as pipeline_settings
from stagecraft.pipeline.local import launcher
from stagecraft.pipeline.pipeline import create_pipeline

PARITY = "stagecraft.ParityReport"

STEPS = {
    "StatisticsGen": {"examples": "Examples"},
    "AnomalyGate": {"examples": "Examples", "schema": "Schema", "statistics": "ExampleStatistics"},
    "Transform": {"examples": "Examples", "schema": "Schema"},
    "ParityGate": {"examples": "Examples", "schema": "Schema", "transform_graph": "TransformGraph"},
    "Trainer": {"examples": "Examples", "schema": "Schema", "transform_graph": "TransformGraph"},
    "Baseline": {"candidate": "Model", "model": "Model", "model_blessing": "ModelBlessing"},
    "Evaluator": {
        "examples": "Examples",
        "schema": "Schema",
        "model": "Model",
        "baseline_model": "Model",
    },
    "Pusher": {"model": "Model", "model_blessing": "ModelBlessing"},
    "TrainingReport": {
        "examples": "Examples",
        "statistics": "ExampleStatistics",
        "schema": "Schema",
        "anomalies": "ExampleAnomalies",
        "transform_graph": "TransformGraph",
        "parity": PARITY,
        "model": "Model",
        "model_run": "ModelRun",
        "evaluation": "ModelEvaluation",
        "blessing": "ModelBlessing",
        "pushed_model": "PushedModel",
    },
}
"""Steps with inputs -> input key -> type, as :func:`test_the_table_is_complete` checks."""

CASES = [(step, key) for step, inputs in STEPS.items() for key in inputs]


class Operator:
    """Stands in for the executor: notes that it ran, and does what the test wants."""

    def __init__(self, act=lambda: None):
        self.ran = False
        self._act = act

    def run_executor(self, info):
        self.ran = True
        self._act()
        return execution_result_pb2.ExecutorOutput()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The whole pipeline, as the runners get it."""
    settings = pipeline_settings.load("quickstart", ["parity.enabled=true"])
    pipeline = create_pipeline(settings, tmp_path_factory.mktemp("compiled"))
    return Compiler().compile(pipeline)


@pytest.fixture
def launched(compiled, tmp_path):
    """``launched(step)`` makes the launcher of a step, as TFX's runners do."""

    def make(step):
        [node] = [n.pipeline_node for n in compiled.nodes if n.pipeline_node.node_info.id == step]
        deployment = runner_utils.extract_local_deployment_config(compiled)
        connection = metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.db"))
        return launcher.ReportingLauncher(
            pipeline_node=node,
            mlmd_connection=metadata.Metadata(connection),
            pipeline_info=compiled.pipeline_info,
            pipeline_runtime_spec=compiled.runtime_spec,
            executor_spec=runner_utils.extract_executor_spec(deployment, step),
        )

    return make


def inputs_of(step, folder):
    """Artifacts with files for each input of a step, with their manifests."""
    found = collections.defaultdict(list)
    for key, kind in STEPS[step].items():
        artifact = _class(kind)()
        fill(artifact, folder / key)
        manifest.add(artifact.mlmd_artifact, kind)
        found[key].append(artifact)
    return found


def _class(kind):
    return ParityReport if kind == PARITY else getattr(standard_artifacts, kind)


def output_of(folder):
    artifact = standard_artifacts.Model()
    artifact.uri = str(folder / "output")
    return {"output": [artifact]}


def run(made, inputs, folder, act=lambda: None):
    """Runs the step; what its executor was asked, its outputs, and the error."""
    operator = made._executor_operator = Operator(act)
    outputs = output_of(folder)
    error = None
    with contextlib.ExitStack() as stack:
        try:
            if made._system_node_handler:
                info = ExecutionInfo(execution_id=0, output_dict=inputs)
                stack.enter_context(pytest.MonkeyPatch.context()).setattr(
                    made, "_publish_failed_execution", lambda *words: None
                )
                made._check_resolved(info)
            else:
                info = ExecutionInfo(execution_id=0, input_dict=inputs, output_dict=outputs)
                made._run_executor(info)
        except (DamagedArtifactError, ZeroDivisionError) as caught:
            error = caught
    return operator, outputs["output"][0], error


def test_the_table_is_complete(compiled):
    found = {}
    for node in compiled.nodes:
        inputs = node.pipeline_node.inputs.inputs
        if inputs and node.pipeline_node.node_info.id != "Baseline":  # which renames its keys
            found[node.pipeline_node.node_info.id] = {
                key: channel.artifact_query.type.name
                for key, spec in inputs.items()
                for channel in spec.channels[:1]
            }
    assert found == {step: inputs for step, inputs in STEPS.items() if step != "Baseline"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("step", "key"), CASES)
def test_a_step_refuses_a_damaged_input(launched, tmp_path, step, key, way):
    inputs = inputs_of(step, tmp_path)
    [artifact] = inputs[key]
    path = files(artifact.uri)[-1]
    WAYS[way](path)
    operator, _, error = run(launched(step), inputs, tmp_path)
    assert not operator.ran
    assert (error.file, error.uri, error.kind) == (str(path), artifact.uri, artifact.type_name)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("step", "key"), [case for case in CASES if case[0] != "Baseline"])
def test_a_step_whose_input_is_damaged_while_it_reads_fails(launched, tmp_path, step, key, way):
    inputs = inputs_of(step, tmp_path)
    path = files(inputs[key][0].uri)[0]
    operator, output, error = run(launched(step), inputs, tmp_path, lambda: WAYS[way](path))
    assert operator.ran
    assert error.file == str(path)
    assert not pathlib.Path(output.uri).exists()  # no later step finds what it made


@pytest.mark.parametrize("step", STEPS)
def test_a_step_with_whole_inputs_runs_and_describes_its_outputs(launched, tmp_path, step):
    def act():
        pathlib.Path(tmp_path, "output", "file").write_text("made")

    operator, output, error = run(launched(step), inputs_of(step, tmp_path), tmp_path, act)
    assert error is None
    if step != "Baseline":  # a resolver makes none
        assert operator.ran
        pathlib.Path(output.uri, "file").write_text("other")
        [damage] = manifest.damages_of(output)
        assert (damage.name, damage.expected.size, damage.found.size) == ("file", 4, 5)


def test_an_error_that_comes_of_damage_names_the_file(launched, tmp_path, monkeypatch):
    """Also of a file that was not read again, because it is large and seems unchanged."""
    monkeypatch.setattr(manifest, "_READ_AGAIN", 0)
    inputs = inputs_of("Trainer", tmp_path)
    [graph] = inputs["transform_graph"]
    graph.mlmd_artifact.create_time_since_epoch = time.time_ns() // 10**6 + 1
    path = files(graph.uri)[0]
    WAYS["one bit"](path)
    operator, _, error = run(launched("Trainer"), inputs, tmp_path, lambda: 1 / 0)
    assert operator.ran
    assert error.file == str(path)
    assert isinstance(error.__context__, ZeroDivisionError)


def test_an_error_of_another_cause_stays(launched, tmp_path):
    _, _, error = run(launched("Trainer"), inputs_of("Trainer", tmp_path), tmp_path, lambda: 1 / 0)
    assert isinstance(error, ZeroDivisionError)
