"""One change to an accepted file for each rule about pipelines: that finding alone."""

import pytest

from stagecraft.pipeline.kubeflow.linter import check


def test_the_file_itself_is_accepted(sample):
    assert check(sample.text) == []


TRAIN = "root.dag.tasks.train"
REPORT = "root.dag.tasks.report"
GIVEN = f"{TRAIN}.inputs.parameters"
ROWS = f"{GIVEN}.rows.taskOutputParameter"
SCHEMA = f"{TRAIN}.inputs.artifacts.schema"
UNUSED = "components.train.inputDefinitions.parameters.unused"
MODEL = "components.train.outputDefinitions.artifacts.model.artifactType"
FETCH = {"taskInfo": {"name": "x"}, "componentRef": {"name": "fetch"}}

EXECUTORS = "deploymentSpec.executors"
BOX = f"{EXECUTORS}.exec-train.container"
IMPORTER = f"{EXECUTORS}.exec-fetch.importer"

EXEC_FETCH = f"{EXECUTORS}.exec-fetch"
RESOURCES = f"{BOX}.resources"
ACCELERATOR = f"{RESOURCES}.accelerator"
OUTPUTS = "components.fetch.outputDefinitions.artifacts"
SAME = {"image": "python:3.12", "command": ["python", "-m", "same"]}
TFX = ["python", "-m", "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"]


def _two_exits(s):
    s.tasks["report-too"] = dict(s.tasks["report"], taskInfo={"name": "report-too"})


def _sub_dag(name="inner", **outputs):
    return {
        f"components.{name}": {"dag": {"tasks": {"inner": FETCH}, "outputs": outputs}},
        "root.dag.tasks.sub": {"taskInfo": {"name": "sub"}, "componentRef": {"name": name}},
    }


def _iterator(**items):
    return {f"{TRAIN}.parameterIterator": {"items": items, "itemInput": "item"}}


def _given_unused(value, wanted):
    given = {"runtimeValue": {"constant": value}}
    return {f"{UNUSED}.parameterType": wanted, f"{GIVEN}.unused": given}


def _at(rule, location, value):
    """A finding at the place that is changed."""
    return rule, location, {location: value}


WRONG_ARTIFACT = {"producerSubtask": "inner", "outputArtifactKey": "other"}
WRONG_PARAMETER = {"producerSubtask": "gone", "outputParameterKey": "rows"}

CASES = [
    # the document
    _at("schema-version", "schemaVersion", "2.0.0"),
    ("pipeline-name", "pipelineInfo.name", {"pipelineInfo": {}}),
    _at("pipeline-name", "pipelineInfo.name", "_"),
    _at("pipeline-name", "pipelineInfo.name", "Ab"),
    _at("unknown-field", "root.colour", "red"),
    _at("unknown-field", f"{TRAIN}.task", 1),
    (
        "malformed-field",
        f"{TRAIN}.cachingOptions.enableCache",
        {f"{TRAIN}.cachingOptions": {"enableCache": "yes"}},
    ),
    (
        "malformed-field",
        f"{TRAIN}.inputs.artifacts.examples",
        {f"{TRAIN}.inputs.artifacts.examples.componentInputArtifact": "x"},
    ),
    _at("pipeline-root", "defaultPipelineRoot", "/r"),
    _at("pipeline-root", "defaultPipelineRoot", "file:///r"),
    # components
    (
        "component-missing",
        "root.dag.tasks.other.componentRef.name",
        {"root.dag.tasks.other": {**FETCH, "componentRef": {"name": "gone"}}},
    ),
    _at("executor-missing", "components.fetch.executorLabel", "gone"),
    ("no-implementation", "components.fetch", {"components.fetch.executorLabel": ...}),
    # order and names
    _at("argo-name", "root.dag.tasks.other_task", FETCH),
    _at("argo-name", "root.dag.tasks.train-driver", FETCH),
    ("argo-name", "components.entrypoint", _sub_dag("entrypoint")),
    ("argo-name", "components.my_dag", _sub_dag("my_dag")),
    ("unknown-dependency", f"{TRAIN}.dependentTasks[0]", {f"{TRAIN}.dependentTasks": ["gone"]}),
    (
        "unknown-dependency",
        "root.dag.tasks.after.dependentTasks[0]",
        {"root.dag.tasks.after": {**FETCH, "dependentTasks": ["report"]}},
    ),
    (
        "dependency-cycle",
        "root.dag.tasks.generate",
        {"root.dag.tasks.generate.dependentTasks": ["train"]},
    ),
    (
        "exit-task",
        REPORT,
        {
            f"{REPORT}.dependentTasks": ...,
            f"{REPORT}.inputs": ...,
            "components.report.inputDefinitions": ...,
        },
    ),
    ("exit-task", REPORT, {f"{REPORT}.dependentTasks": ["fetch"]}),
    ("exit-task", REPORT, _two_exits),
    # what a task says of itself
    ("task-info-name", f"{TRAIN}.taskInfo.name", {f"{TRAIN}.taskInfo": ...}),
    (
        "importer-condition",
        "root.dag.tasks.fetch.triggerPolicy.condition",
        {"root.dag.tasks.fetch.triggerPolicy": {"condition": "true"}},
    ),
    _at(
        "artifact-iterator",
        f"{TRAIN}.artifactIterator",
        {"items": {"inputArtifact": "schema"}, "itemInput": "x"},
    ),
    ("parameter-iterator", f"{TRAIN}.parameterIterator", _iterator(raw="[1, ")),
    ("parameter-iterator", f"{TRAIN}.parameterIterator", _iterator(raw="3")),
    ("parameter-iterator", f"{TRAIN}.parameterIterator", _iterator(inputParameter="gone")),
    *(
        _at("retry-policy", f"{TRAIN}.retryPolicy.{name}", value)
        for name, value in (
            ("maxRetryCount", -1),
            ("backoffDuration", "1.5s"),
            ("backoffMaxDuration", "10s"),
        )
    ),
    # parameters
    (
        "null-parameter",
        f"{GIVEN}.steps",
        {
            "root.inputDefinitions.parameters.steps": {
                "parameterType": "NUMBER_INTEGER",
                "isOptional": True,
            }
        },
    ),
    *(
        (rule, f"{GIVEN}.unused.runtimeValue.constant", _given_unused(value, "STRING"))
        for rule, value in (
            ("null-constant", None),
            ("placeholder-in-value", "{{$.inputs.parameters['steps']}}"),
            ("variable-in-value", "costs $$5"),
        )
    ),
    _at("parameter-type", "root.inputDefinitions.parameters.steps.defaultValue", "many"),
    _at(
        "parameter-type",
        "root.inputDefinitions.parameters.note",
        {"type": "STRING", "isOptional": True},
    ),
    *(
        ("runtime-value", f"{GIVEN}.mode.runtimeValue", {f"{GIVEN}.mode": {"runtimeValue": value}})
        for value in ({"constantValue": {"stringValue": "fast"}}, {"runtimeParameter": "mode"})
    ),
    _at("no-source", f"{GIVEN}.mode", {}),
    (
        "unknown-input-parameter",
        f"{GIVEN}.mode.componentInputParameter",
        {f"{GIVEN}.mode": {"componentInputParameter": "gone"}},
    ),
    _at("unknown-producer", f"{ROWS}.producerTask", "generate_task"),
    _at("unknown-output", f"{ROWS}.outputParameterKey", "lines"),
    (
        "final-status",
        f"{REPORT}.inputs.parameters.status.taskFinalStatus",
        {f"{REPORT}.dependentTasks": [], f"{REPORT}.triggerPolicy": {}},
    ),
    _at("missing-parameter", f"{GIVEN}.mode", ...),
    ("missing-parameter", f"{GIVEN}.unused", {f"{UNUSED}.isOptional": False}),
    (
        "missing-parameter",
        f"{GIVEN}.unused",
        {UNUSED: {"isOptional": False, "parameterType": "BOOLEAN", "defaultValue": True}},
    ),
    _at("parameter-literal", f"{GIVEN}.mode", {"runtimeValue": {"constant": "medium"}}),
    ("parameter-type", f"{GIVEN}.unused", _given_unused("x", "NUMBER_INTEGER")),
    ("parameter-type", f"{GIVEN}.unused", _given_unused(True, "NUMBER_DOUBLE")),
    ("parameter-type", f"{GIVEN}.unused", _given_unused(1, "BOOLEAN")),
    ("parameter-type", f"{GIVEN}.unused", _given_unused([1], "STRUCT")),
    ("parameter-type", f"{GIVEN}.unused", _given_unused(None, "LIST")),
    (
        "parameter-type",
        f"{GIVEN}.rows",
        {"components.generate.outputDefinitions.parameters.rows.parameterType": "STRING"},
    ),
    # artifacts
    (
        "unknown-producer",
        f"{SCHEMA}.taskOutputArtifact.producerTask",
        {SCHEMA: {"taskOutputArtifact": {"producerTask": "x", "outputArtifactKey": "s"}}},
    ),
    (
        "unknown-output",
        f"{SCHEMA}.taskOutputArtifact.outputArtifactKey",
        {SCHEMA: {"taskOutputArtifact": {"producerTask": "fetch", "outputArtifactKey": "s"}}},
    ),
    (
        "unknown-input-artifact",
        f"{SCHEMA}.componentInputArtifact",
        {SCHEMA: {"componentInputArtifact": "schema"}},
    ),
    _at("no-source", SCHEMA, {}),
    *(
        _at("artifact-type", MODEL, schema)
        for schema in (
            {},
            {"schemaTitle": ""},
            {"instanceSchema": ""},
            {"instanceSchema": "type: object"},
            {"schemaUri": "a"},
        )
    ),
    (
        "dag-output",
        "components.inner.dag.outputs.artifacts.out",
        _sub_dag(artifacts={"out": {"artifactSelectors": [WRONG_ARTIFACT]}}),
    ),
    (
        "dag-output",
        "components.inner.dag.outputs.parameters.out",
        _sub_dag(parameters={"out": {"valueFromParameter": WRONG_PARAMETER}}),
    ),
    # conditions
    *(
        _at("condition", f"{TRAIN}.triggerPolicy.condition", text)
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
    # kinds
    (
        "executor-kind",
        f"{EXEC_FETCH}.resolver",
        {EXEC_FETCH: {"resolver": {"outputArtifactQueries": {}}}},
    ),
    ("executor-kind", f"{EXEC_FETCH}.customJob", {EXEC_FETCH: {"customJob": {"customJob": {}}}}),
    _at("executor-field-ignored", f"{RESOURCES}.cpus", 3),
    (
        "same-container",
        f"{EXECUTORS}.exec-report.container",
        {f"{EXECUTORS}.exec-{name}.container": SAME for name in ("report", "generate")},
    ),
    # containers
    _at("container-image", f"{BOX}.image", ...),
    _at("container-command", f"{EXECUTORS}.exec-report.container.command", ...),
    _at("lifecycle-ignored", f"{BOX}.lifecycle", {"preCacheCheck": {"command": ["x"]}}),
    _at("kubernetes-name", f"{BOX}.image", " x "),
    *(
        ("kubernetes-name", f"{BOX}.env[0].name", {f"{BOX}.env": [{"name": name, "value": "x"}]})
        for name in ("a=b", "")
    ),
    _at("placeholder", f"{BOX}.image", "{{$.inputs.parameters['image']}}"),
    _at("placeholder", f"{BOX}.image", "python:{{$.inputs.parameters['mode']}}"),
    *(
        ("placeholder", f"{BOX}.args[0]", {f"{BOX}.args": [text]})
        for text in (
            "--x={{$.inputs.parameters['unused']}}",
            "{{$.outputs.artifacts['gone'].path}}",
        )
    ),
    # resources
    _at("resources", f"{RESOURCES}.resourceMemoryLimit", "16GB"),
    _at("resources", f"{RESOURCES}.cpuLimit", -1),
    ("resources", f"{RESOURCES}.memoryRequest", {f"{RESOURCES}.resourceMemoryRequest": "17G"}),
    _at("accelerator", ACCELERATOR, {"type": "nvidia.com/gpu"}),
    _at("accelerator", ACCELERATOR, {"type": "NVIDIA_TESLA_T4", "count": "1"}),
    _at("resources", ACCELERATOR, {"type": "nvidia.com/gpu", "resourceCount": "0.5"}),
    # importers
    _at("artifact-type", f"{IMPORTER}.typeSchema", {}),
    ("importer-output", OUTPUTS, {f"{OUTPUTS}.more": {"artifactType": {"schemaTitle": "a"}}}),
    *(
        _at("importer-uri", f"{IMPORTER}.artifactUri", uri)
        for uri in (
            {},
            {"constant": "/data/schema"},
            {"constant": ""},
            {"constant": "oci://registry/schema"},
            {"constantValue": {"stringValue": "gs://bucket/schema"}},
            {"runtimeParameter": "uri"},
        )
    ),
    # TFX on top
    _at("tfx-input-type", f"{BOX}.command", TFX),
    _at("tfx-uri", f"{EXECUTORS}.exec-generate.container.command", TFX),
]


@pytest.mark.parametrize(
    ("rule", "location", "change"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_exactly_that_finding(sample, rule, location, change):
    sample.change(change)
    assert [(found.rule, found.location) for found in check(sample.text)] == [(rule, location)]


def test_without_a_root(sample):
    del sample.pipeline["root"]
    sample.platform = {}
    rules = [found.rule for found in check(sample.text)]
    assert rules == ["document-ignored", "root-missing"]


def test_exit_tasks_alone(sample):
    sample.change({"root.dag.tasks": {"report": dict(sample.tasks["report"], dependentTasks=[])}})
    sample.platform = None
    rules = {found.rule for found in check(sample.text)}
    assert rules == {"empty-dag", "exit-task", "final-status"}


def test_a_component_without_a_type_takes_no_value(sample):
    sample.change({"components.train.inputDefinitions.parameters.mode": {"type": "STRING"}})
    [found] = check(sample.text)
    assert (found.rule, found.location) == ("parameter-type", f"{GIVEN}.mode")
    assert "schema 2.0" in found.remedy


def test_the_suffix_of_dynamic_properties_is_told(sample):
    sample.change({f"{ROWS}.producerTask": "generate_task"})
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
    sample.change(_given_unused([1, 2], "STRING"))  # turned into text
    sample.change({MODEL: {"schemaTitle": "any Title"}})  # TFX's pattern is not the backend's
    sample.components["unreached"] = {"executorLabel": "gone"}
    sample.container["command"] = []  # args are then the command
    sample.executors["exec-report"]["container"]["image"] = "argostub/deletepvc"
    assert check(sample.text) == []


def test_sources_name_a_file_of_the_backend(sample):
    for _, _, change in CASES[:3]:
        sample.change(change)
    assert {found.source.partition("/")[0] for found in check(sample.text)} == {"backend"}
