"""Rules for sources of inputs: a constant, an input of the DAG, an output of another task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import ROOT, Task

_RESOLVE = "backend/src/v2/driver/resolve.go"
_IMPLICIT = "backend/src/v2/compiler/argocompiler/dag.go addImplicitDependencies"


def parameter_source(
    source: dict[str, Any], task: Task, location: str, *, makes_order: bool = True
) -> Iterator[Finding]:
    """Checks an InputParameterSpec; ``makes_order``: the backend makes the task wait for it."""
    if "runtimeValue" in source:
        if "constant" not in source["runtimeValue"]:
            kind = next(iter(source["runtimeValue"]), "nothing")
            yield Finding(
                "runtime-value",
                f"{location}.runtimeValue",
                f"The driver of the task fails: a runtimeValue must be a constant; {kind} is not "
                "implemented.",
                "Compile with use_pipeline_spec_2_1=True, which writes runtimeValue.constant.",
                f"{_RESOLVE} resolveInputParameter",
            )
    elif "taskFinalStatus" in source:
        if not task.spec.get("dependentTasks"):
            yield Finding(
                "final-status",
                f"{location}.taskFinalStatus",
                "The driver of the task fails: it gets the status of the first task in "
                "dependentTasks, and this list is empty.",
                "Add the task whose status you need to dependentTasks.",
                f"{_RESOLVE} resolveInputParameter",
            )
    else:
        yield from _of_other_task(source, task, location, "Parameter", makes_order)


def artifact_source(source: dict[str, Any], task: Task, location: str) -> Iterator[Finding]:
    """Checks the source of an artifact, an InputArtifactSpec."""
    yield from _of_other_task(source, task, location, "Artifact", True)


def _of_other_task(
    source: dict[str, Any], task: Task, location: str, what: str, makes_order: bool
) -> Iterator[Finding]:
    """An output of another task or an input of the DAG; ``what``: Parameter or Artifact."""
    kind, output = f"{what.lower()}s", source.get(f"taskOutput{what}")
    if output is not None:
        producer, key = output.get("producerTask", ""), output.get(f"output{what}Key", "")
        yield from _output(task, f"{location}.taskOutput{what}", kind, producer, key, makes_order)
    elif (name := source.get(f"componentInput{what}")) is not None:
        yield from _dag_input(task, f"{location}.componentInput{what}", kind, name)
    else:
        yield Finding(
            "no-source",
            location,
            "The driver of the task fails: the input has no source.",
            "Use a constant, an output of a task, or an input of the DAG.",
            f"{_RESOLVE} resolveInput{what}",
        )


def _output(
    task: Task, location: str, kind: str, producer: str, key: str, makes_order: bool
) -> Iterator[Finding]:
    tasks = task.dag.tasks
    what = kind.removesuffix("s")
    if producer not in tasks:
        short = producer.removesuffix("_task")
        yield Finding(
            "unknown-producer",
            f"{location}.producerTask",
            f"The run is refused: there is no task {producer!r} in this DAG.",
            f"Write {short!r}: TFX adds _task to the producers of dynamic execution properties."
            if short in tasks and short != producer
            else "Name a task of the same DAG; pass values of another DAG through its outputs.",
            _IMPLICIT,
        )
        return
    component = tasks[producer].component
    if component is not None and key not in component.outputs(kind):
        yield Finding(
            "unknown-output",
            f"{location}.output{what.title()}Key",
            f"The driver of the task fails: {component.location}.outputDefinitions.{kind} has no "
            f"{key!r}.",
            f"Name one of its outputs: {', '.join(component.outputs(kind)) or 'it has none'}.",
            f"{_RESOLVE} resolveUpstream{kind.title()}",
        )
    if not makes_order and producer not in _upstream(task):
        yield Finding(
            "unordered-producer",
            f"{location}.producerTask",
            f"The driver of the task fails if it runs first: the task does not wait for "
            f"{producer!r}, because platform settings create no dependencies.",
            f"Add {producer!r} to {task.location}.dependentTasks.",
            _IMPLICIT,
        )


def _upstream(task: Task) -> set[str]:
    found: set[str] = set()
    names = task.depends_on()
    while names:
        name = names.pop()
        if name not in found and name in task.dag.tasks:
            found.add(name)
            names += task.dag.tasks[name].depends_on()
    return found


def _dag_input(task: Task, location: str, kind: str, name: str) -> Iterator[Finding]:
    dag = task.dag.component
    what = kind.removesuffix("s")
    if kind == "artifacts" and dag.name == ROOT:
        yield Finding(
            f"unknown-input-{what}",
            location,
            "The driver of the task fails: the root has no input artifacts.",
            "Import the artifact with an importer.",
            f"{_RESOLVE} resolveInputArtifact",
        )
    elif name not in dag.inputs(kind):
        yield Finding(
            f"unknown-input-{what}",
            location,
            f"The driver of the task fails: {dag.location}.inputDefinitions.{kind} has no "
            f"{name!r}.",
            f"Define it there, or name one of: {', '.join(dag.inputs(kind)) or 'it has none'}.",
            f"{_RESOLVE} resolveInput{what.title()}",
        )
