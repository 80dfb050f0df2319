"""One change to an accepted file for each rule about components and tasks: that finding alone."""

from __future__ import annotations

import pytest

from stagecraft.pipeline.kubeflow.linter import check


def test_the_file_itself_is_accepted(sample):
    assert check(sample.text) == []


def _exit_without_upstream(s):
    del s.tasks["report"]["dependentTasks"]
    del s.tasks["report"]["inputs"]
    s.components["report"].pop("inputDefinitions")


def _exit_after_importer(s):
    s.tasks["report"]["dependentTasks"] = ["fetch"]


def _two_exits(s):
    s.tasks["report-too"] = dict(s.tasks["report"], taskInfo={"name": "report-too"})


def _only_exits(s):
    s.root["dag"]["tasks"] = {"report": dict(s.tasks["report"], dependentTasks=[])}


def _cycle(s):
    s.tasks["generate"]["dependentTasks"] = ["train"]


def _underscore(s):
    s.tasks["other_task"] = {"taskInfo": {"name": "x"}, "componentRef": {"name": "fetch"}}


def _driver_taken(s):
    s.tasks["train-driver"] = {"taskInfo": {"name": "x"}, "componentRef": {"name": "fetch"}}


def _sub_dag(s, name="inner", **outputs):
    inner = {"componentRef": {"name": "fetch"}, "taskInfo": {"name": "inner"}}
    s.components[name] = {"dag": {"tasks": {"inner": inner}, "outputs": outputs}}
    s.tasks["sub"] = {"taskInfo": {"name": "sub"}, "componentRef": {"name": name}}


def _dag_output(s):
    wrong = {"producerSubtask": "inner", "outputArtifactKey": "other"}
    _sub_dag(s, artifacts={"out": {"artifactSelectors": [wrong]}})


def _dag_parameter(s):
    wrong = {"producerSubtask": "gone", "outputParameterKey": "rows"}
    _sub_dag(s, parameters={"out": {"valueFromParameter": wrong}})


def _artifact_iterator(s):
    s.tasks["train"]["artifactIterator"] = {"items": {"inputArtifact": "schema"}, "itemInput": "x"}


def _iterator(s, **items):
    s.tasks["train"]["parameterIterator"] = {"items": items, "itemInput": "item"}


def _parameter(s, name, **source):
    s.tasks["train"]["inputs"]["parameters"][name] = source


def _artifact(s, **source):
    s.tasks["train"]["inputs"]["artifacts"]["schema"] = source


def _definition(s, **changes):
    s.components["train"]["inputDefinitions"]["parameters"]["unused"].update(changes)


def _text(s, value):
    s.tasks["train"]["inputs"]["parameters"]["text"] = {"runtimeValue": {"constant": value}}
    s.components["train"]["inputDefinitions"]["parameters"]["text"] = {"parameterType": "STRING"}


def _given_unused(s, value, wanted):
    _definition(s, parameterType=wanted)
    _parameter(s, "unused", runtimeValue={"constant": value})


def _output_type(s, **schema):
    s.components["train"]["outputDefinitions"]["artifacts"]["model"]["artifactType"] = schema


def _condition(s, text):
    s.tasks["train"]["triggerPolicy"]["condition"] = text


TRAIN = "root.dag.tasks.train"
GIVEN = f"{TRAIN}.inputs.parameters"

CASES = [
    # the document
    ("schema-version", "schemaVersion", lambda s: s.pipeline.update(schemaVersion="2.0.0")),
    ("pipeline-name", "pipelineInfo.name", lambda s: s.pipeline.update(pipelineInfo={})),
    ("pipeline-name", "pipelineInfo.name", lambda s: s.pipeline["pipelineInfo"].update(name="_")),
    ("pipeline-name", "pipelineInfo.name", lambda s: s.pipeline["pipelineInfo"].update(name="Ab")),
    ("unknown-field", "root.colour", lambda s: s.root.update(colour="red")),
    ("unknown-field", f"{TRAIN}.task", lambda s: s.tasks["train"].update(task=1)),
    (
        "malformed-field",
        f"{TRAIN}.cachingOptions.enableCache",
        lambda s: s.tasks["train"].update(cachingOptions={"enableCache": "yes"}),
    ),
    (
        "malformed-field",
        f"{TRAIN}.inputs.artifacts.examples",
        lambda s: s.tasks["train"]["inputs"]["artifacts"]["examples"].update(
            componentInputArtifact="x"
        ),
    ),
    ("pipeline-root", "defaultPipelineRoot", lambda s: s.pipeline.update(defaultPipelineRoot="/r")),
    (
        "pipeline-root",
        "defaultPipelineRoot",
        lambda s: s.pipeline.update(defaultPipelineRoot="file:///r"),
    ),
    # components
    (
        "component-missing",
        "root.dag.tasks.other.componentRef.name",
        lambda s: s.tasks.update(
            other={"taskInfo": {"name": "o"}, "componentRef": {"name": "gone"}}
        ),
    ),
    (
        "executor-missing",
        "components.fetch.executorLabel",
        lambda s: s.components["fetch"].update(executorLabel="gone"),
    ),
    (
        "no-implementation",
        "components.fetch",
        lambda s: s.components["fetch"].pop("executorLabel"),
    ),
    # order and names
    ("argo-name", "root.dag.tasks.other_task", _underscore),
    ("argo-name", "root.dag.tasks.train-driver", _driver_taken),
    ("argo-name", "components.entrypoint", lambda s: _sub_dag(s, "entrypoint")),
    ("argo-name", "components.my_dag", lambda s: _sub_dag(s, "my_dag")),
    (
        "unknown-dependency",
        f"{TRAIN}.dependentTasks[0]",
        lambda s: s.tasks["train"].update(dependentTasks=["gone"]),
    ),
    (
        "unknown-dependency",
        "root.dag.tasks.after.dependentTasks[0]",
        lambda s: s.tasks.update(
            after={"componentRef": {"name": "fetch"}, "dependentTasks": ["report"]}
        ),
    ),
    ("dependency-cycle", "root.dag.tasks.generate", _cycle),
    ("exit-task", "root.dag.tasks.report", _exit_without_upstream),
    ("exit-task", "root.dag.tasks.report", _exit_after_importer),
    ("exit-task", "root.dag.tasks.report", _two_exits),
    # what a task says of itself
    ("task-info-name", f"{TRAIN}.taskInfo.name", lambda s: s.tasks["train"].pop("taskInfo")),
    (
        "importer-condition",
        "root.dag.tasks.fetch.triggerPolicy.condition",
        lambda s: s.tasks["fetch"].update(triggerPolicy={"condition": "true"}),
    ),
    ("artifact-iterator", f"{TRAIN}.artifactIterator", _artifact_iterator),
    ("parameter-iterator", f"{TRAIN}.parameterIterator", lambda s: _iterator(s, raw="[1, ")),
    ("parameter-iterator", f"{TRAIN}.parameterIterator", lambda s: _iterator(s, raw="3")),
    (
        "parameter-iterator",
        f"{TRAIN}.parameterIterator",
        lambda s: _iterator(s, inputParameter="gone"),
    ),
    (
        "retry-policy",
        f"{TRAIN}.retryPolicy.maxRetryCount",
        lambda s: s.tasks["train"]["retryPolicy"].update(maxRetryCount=-1),
    ),
    (
        "retry-policy",
        f"{TRAIN}.retryPolicy.backoffDuration",
        lambda s: s.tasks["train"]["retryPolicy"].update(backoffDuration="1.5s"),
    ),
    (
        "retry-policy",
        f"{TRAIN}.retryPolicy.backoffMaxDuration",
        lambda s: s.tasks["train"]["retryPolicy"].update(backoffMaxDuration="10s"),
    ),
    # parameters
    (
        "null-parameter",
        "root.dag.tasks.train.inputs.parameters.steps",
        lambda s: s.root["inputDefinitions"]["parameters"].update(
            steps={"parameterType": "NUMBER_INTEGER", "isOptional": True}
        ),
    ),
    (
        "null-constant",
        "root.dag.tasks.train.inputs.parameters.text.runtimeValue.constant",
        lambda s: _text(s, None),
    ),
    (
        "placeholder-in-value",
        "root.dag.tasks.train.inputs.parameters.text.runtimeValue.constant",
        lambda s: _text(s, "{{$.inputs.parameters['steps']}}"),
    ),
    (
        "variable-in-value",
        "root.dag.tasks.train.inputs.parameters.text.runtimeValue.constant",
        lambda s: _text(s, "costs $$5"),
    ),
    (
        "parameter-type",
        "root.inputDefinitions.parameters.steps.defaultValue",
        lambda s: s.root["inputDefinitions"]["parameters"]["steps"].update(defaultValue="many"),
    ),
    (
        "parameter-type",
        "root.inputDefinitions.parameters.note",
        lambda s: s.root["inputDefinitions"]["parameters"].update(
            note={"type": "STRING", "isOptional": True}
        ),
    ),
    (
        "runtime-value",
        f"{GIVEN}.mode.runtimeValue",
        lambda s: _parameter(s, "mode", runtimeValue={"constantValue": {"stringValue": "fast"}}),
    ),
    (
        "runtime-value",
        f"{GIVEN}.mode.runtimeValue",
        lambda s: _parameter(s, "mode", runtimeValue={"runtimeParameter": "mode"}),
    ),
    ("no-source", f"{GIVEN}.mode", lambda s: _parameter(s, "mode")),
    (
        "unknown-input-parameter",
        f"{GIVEN}.mode.componentInputParameter",
        lambda s: _parameter(s, "mode", componentInputParameter="gone"),
    ),
    (
        "unknown-producer",
        f"{GIVEN}.rows.taskOutputParameter.producerTask",
        lambda s: s.tasks["train"]["inputs"]["parameters"]["rows"]["taskOutputParameter"].update(
            producerTask="generate_task"
        ),
    ),
    (
        "unknown-output",
        f"{GIVEN}.rows.taskOutputParameter.outputParameterKey",
        lambda s: s.tasks["train"]["inputs"]["parameters"]["rows"]["taskOutputParameter"].update(
            outputParameterKey="lines"
        ),
    ),
    (
        "final-status",
        "root.dag.tasks.report.inputs.parameters.status.taskFinalStatus",
        lambda s: s.tasks["report"].update(dependentTasks=[], triggerPolicy={}),
    ),
    (
        "missing-parameter",
        f"{GIVEN}.mode",
        lambda s: s.tasks["train"]["inputs"]["parameters"].pop("mode"),
    ),
    ("missing-parameter", f"{GIVEN}.unused", lambda s: _definition(s, isOptional=False)),
    (
        "missing-parameter",
        f"{GIVEN}.unused",
        lambda s: _definition(s, isOptional=False, parameterType="BOOLEAN", defaultValue=True),
    ),
    (
        "parameter-literal",
        f"{GIVEN}.mode",
        lambda s: _parameter(s, "mode", runtimeValue={"constant": "medium"}),
    ),
    ("parameter-type", f"{GIVEN}.unused", lambda s: _given_unused(s, "x", "NUMBER_INTEGER")),
    ("parameter-type", f"{GIVEN}.unused", lambda s: _given_unused(s, True, "NUMBER_DOUBLE")),
    ("parameter-type", f"{GIVEN}.unused", lambda s: _given_unused(s, 1, "BOOLEAN")),
    ("parameter-type", f"{GIVEN}.unused", lambda s: _given_unused(s, [1], "STRUCT")),
    ("parameter-type", f"{GIVEN}.unused", lambda s: _given_unused(s, None, "LIST")),
    (
        "parameter-type",
        f"{GIVEN}.rows",
        lambda s: s.components["generate"]["outputDefinitions"]["parameters"]["rows"].update(
            parameterType="STRING"
        ),
    ),
    # artifacts
    (
        "unknown-producer",
        f"{TRAIN}.inputs.artifacts.schema.taskOutputArtifact.producerTask",
        lambda s: _artifact(s, taskOutputArtifact={"producerTask": "x", "outputArtifactKey": "s"}),
    ),
    (
        "unknown-output",
        f"{TRAIN}.inputs.artifacts.schema.taskOutputArtifact.outputArtifactKey",
        lambda s: _artifact(
            s, taskOutputArtifact={"producerTask": "fetch", "outputArtifactKey": "s"}
        ),
    ),
    (
        "unknown-input-artifact",
        f"{TRAIN}.inputs.artifacts.schema.componentInputArtifact",
        lambda s: _artifact(s, componentInputArtifact="schema"),
    ),
    ("no-source", f"{TRAIN}.inputs.artifacts.schema", _artifact),
    *(
        (
            "artifact-type",
            "components.train.outputDefinitions.artifacts.model.artifactType",
            lambda s, schema=schema: _output_type(s, **schema),
        )
        for schema in (
            {},
            {"schemaTitle": ""},
            {"instanceSchema": ""},
            {"instanceSchema": "type: object"},
            {"schemaUri": "a"},
        )
    ),
    ("dag-output", "components.inner.dag.outputs.artifacts.out", _dag_output),
    ("dag-output", "components.inner.dag.outputs.parameters.out", _dag_parameter),
    # conditions
    *(
        ("condition", f"{TRAIN}.triggerPolicy.condition", lambda s, text=text: _condition(s, text))
        for text in (
            "inputs.parameter_values['rows' > 0",
            "(inputs.parameter_values['rows'] > 0",
            "inputs.parameter_values['gone'] > 0",
            "inputs.artifacts['gone'].artifacts[0].uri == 'x'",
            "inputs.parameters['rows'].int_value > 0",
            "inputs.artifacts['examples'].artifacts[0].value == 'x'",
            "rows > 0",
            "inputs.parameter_values['rows'] > 0 and true",
            "inputs.parameter_values['rows'] = @",
        )
    ),
]


@pytest.mark.parametrize(
    ("rule", "location", "change"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_exactly_that_finding(sample, rule, location, change):
    change(sample)
    assert [(found.rule, found.location) for found in check(sample.text)] == [(rule, location)]


def test_without_a_root(sample):
    del sample.pipeline["root"]
    sample.platform = {}
    rules = [found.rule for found in check(sample.text)]
    assert rules == ["document-ignored", "root-missing"]


def test_exit_tasks_alone(sample):
    _only_exits(sample)
    sample.platform = None
    rules = {found.rule for found in check(sample.text)}
    assert rules == {"empty-dag", "exit-task", "final-status"}


def test_a_component_without_a_type_takes_no_value(sample):
    definitions = sample.components["train"]["inputDefinitions"]["parameters"]
    definitions["mode"] = {"type": "STRING"}
    [found] = check(sample.text)
    assert (found.rule, found.location) == ("parameter-type", f"{GIVEN}.mode")
    assert "schema 2.0" in found.remedy


def test_the_suffix_of_dynamic_properties_is_told(sample):
    source = sample.tasks["train"]["inputs"]["parameters"]["rows"]["taskOutputParameter"]
    source["producerTask"] = "generate_task"
    [found] = check(sample.text)
    assert found.remedy.startswith("Write 'generate'")


def test_what_the_backend_takes_is_not_found(sample):
    """Where it is milder than one would think."""
    train = sample.tasks["train"]
    train["inputs"]["parameters"]["more"] = {"runtimeValue": {"constant": 1}}  # not defined
    train["triggerPolicy"]["strategy"] = "ALL_UPSTREAM_TASKS_SUCCEEDED"
    train["component_ref"] = train.pop("componentRef")  # the proto's own spelling
    train["dependentTasks"] = []  # follows from the inputs
    train["iteratorPolicy"] = None  # not set
    _given_unused(sample, [1, 2], "STRING")  # turned into text
    _output_type(sample, schemaTitle="any Title")  # TFX's pattern is not the backend's
    sample.components["unreached"] = {"executorLabel": "gone"}
    sample.container["command"] = []  # args are then the command
    sample.executors["exec-report"]["container"]["image"] = "argostub/deletepvc"
    assert check(sample.text) == []


def test_sources_name_a_file_of_the_backend(sample):
    for _, _, change in CASES[:3]:
        change(sample)
    assert {found.source.partition("/")[0] for found in check(sample.text)} == {"backend"}
