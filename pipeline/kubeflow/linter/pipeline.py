"""A pipeline spec as the backend visits it: DAGs, tasks, components, executors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.protojson import PIPELINE, Reader, Wrong

ROOT = "root"

_ACCEPT = "backend/src/v2/compiler/visitor.go"


@dataclasses.dataclass(eq=False)
class Component:
    """A component that a task refers to, or the root."""

    name: str
    spec: dict[str, Any]
    label: str = ""
    """Label of its executor; empty for a DAG."""

    container: dict[str, Any] | None = None
    importer: dict[str, Any] | None = None

    @property
    def location(self) -> str:
        """Path in the document."""
        return ROOT if self.name == ROOT else f"components.{self.name}"

    @property
    def executor_location(self) -> str:
        """Path of its executor."""
        return f"deploymentSpec.executors.{self.label}"

    def inputs(self, kind: str) -> dict[str, dict[str, Any]]:
        """Its inputs of a kind, ``parameters`` or ``artifacts``, by name."""
        return specs.inputs(self.spec, kind)

    def outputs(self, kind: str) -> dict[str, dict[str, Any]]:
        """Its outputs of a kind, by name."""
        return specs.outputs(self.spec, kind)


@dataclasses.dataclass(eq=False)
class Task:
    """A task of a DAG."""

    name: str
    spec: dict[str, Any]
    dag: Dag
    component: Component | None
    """The component; None: it does not exist."""

    @property
    def location(self) -> str:
        """Path in the document."""
        return f"{self.dag.component.location}.dag.tasks.{self.name}"

    @property
    def is_exit(self) -> bool:
        """Whether it is an exit handler."""
        return specs.is_exit(self.spec)

    @property
    def condition(self) -> str:
        """CEL expression; empty: the task always runs."""
        return specs.condition(self.spec)

    def inputs(self, kind: str) -> dict[str, dict[str, Any]]:
        """Its inputs of a kind, ``parameters`` or ``artifacts``, by name."""
        return specs.sources(self.spec, kind)

    def depends_on(self) -> list[str]:
        """Tasks that it waits for."""
        return list(specs.dependencies(self.spec))


@dataclasses.dataclass(eq=False)
class Dag:
    """A component that consists of tasks."""

    component: Component
    tasks: dict[str, Task] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False)
class Pipeline:
    """Everything that the root reaches; the backend reads nothing else."""

    spec: dict[str, Any]
    executors: dict[str, dict[str, Any]]
    components: dict[str, Component] = dataclasses.field(default_factory=dict)
    dags: list[Dag] = dataclasses.field(default_factory=list)

    @property
    def tasks(self) -> list[Task]:
        """The tasks of all DAGs."""
        return [task for dag in self.dags for task in dag.tasks.values()]

    def users(self, component: Component) -> list[Task]:
        """The tasks that run a component."""
        return [task for task in self.tasks if task.component is component]

    def containers(self) -> Iterator[tuple[Component, dict[str, Any], str]]:
        """Components that are containers: each with the container and its location."""
        for each in self.components.values():
            if each.container is not None:
                yield each, each.container, f"{each.executor_location}.container"

    def importers(self) -> Iterator[tuple[Component, dict[str, Any], str]]:
        """Components that are importers: each with the importer and its location."""
        for each in self.components.values():
            if each.importer is not None:
                yield each, each.importer, f"{each.executor_location}.importer"


def walk(spec: dict[str, Any]) -> tuple[Pipeline, list[Finding]]:
    """The pipeline of a spec, and findings of missing parts.

    As Accept and pipelineDFS.dfs of backend/src/v2/compiler/visitor.go, but continues after errors.
    """
    reader = Reader(PIPELINE)
    deployment = reader.read(
        "PipelineDeploymentConfig", spec.get("deploymentSpec", {}), "deploymentSpec"
    )
    findings = [_malformed(wrong) for wrong in reader.wrong]
    pipeline = Pipeline(spec, deployment.get("executors", {}))
    if "root" in spec:
        _visit(pipeline, ROOT, spec["root"], findings)
    return pipeline, findings


def _visit(
    pipeline: Pipeline, name: str, spec: dict[str, Any], findings: list[Finding]
) -> Component:
    if name in pipeline.components:
        return pipeline.components[name]
    component = pipeline.components[name] = Component(name, spec, spec.get("executorLabel", ""))
    if component.label:
        findings += _find_executor(pipeline, component)
    elif "dag" not in spec:
        findings.append(
            Finding(
                "no-implementation",
                component.location,
                "The run is refused: the component has neither a dag nor an executor.",
                "Give it an executorLabel.",
                f"{_ACCEPT} dfs",
            )
        )
    else:
        dag = Dag(component)
        pipeline.dags.append(dag)
        for key, task in sorted(spec["dag"].get("tasks", {}).items()):
            dag.tasks[key] = Task(key, task, dag, None)
        for task in dag.tasks.values():
            ref = task.spec.get("componentRef", {}).get("name", "")
            found = pipeline.spec.get("components", {}).get(ref)
            if found is None:
                findings.append(
                    Finding(
                        "component-missing",
                        f"{task.location}.componentRef.name",
                        f"The run is refused: there is no component {ref!r}."
                        if ref
                        else "The run is refused: the task names no component.",
                        "Add it under components, or correct the name.",
                        f"{_ACCEPT} dfs",
                    )
                )
            else:
                task.component = _visit(pipeline, ref, found, findings)
    return component


def _find_executor(pipeline: Pipeline, component: Component) -> list[Finding]:
    executor = pipeline.executors.get(component.label)
    if executor is None:
        return [
            Finding(
                "executor-missing",
                f"{component.location}.executorLabel",
                f"The run is refused: there is no executor {component.label!r}.",
                "Add it under deploymentSpec.executors, or correct the label.",
                f"{_ACCEPT} dfs",
            )
        ]
    component.container = executor.get("container")
    component.importer = executor.get("importer")
    if component.container is not None or component.importer is not None:
        return []
    kind = next(iter(executor), "nothing")
    remedy = {
        "resolver": "Compile the resolver to a container, or remove its node from the pipeline.",
        "customJob": "Run it as a container: only Vertex AI runs custom jobs.",
    }
    return [
        Finding(
            "executor-kind",
            f"{component.executor_location}.{kind}" if executor else component.executor_location,
            f"The run is refused: the backend runs containers and importers, not {kind}.",
            remedy.get(kind, "Give the executor a container."),
            f"{_ACCEPT} dfs",
        )
    ]


def _malformed(wrong: Wrong) -> Finding:
    if wrong.unknown:
        return Finding(
            "executor-field-ignored",
            wrong.location,
            f"The backend silently ignores it: {wrong.problem}.",
            "Remove the field, or correct its name.",
            f"{_ACCEPT} GetDeploymentConfig",
        )
    return Finding(
        "malformed-field",
        wrong.location,
        f"The run is refused: {wrong.problem}.",
        "Use the type of pipeline_spec.proto.",
        f"{_ACCEPT} GetDeploymentConfig",
    )
