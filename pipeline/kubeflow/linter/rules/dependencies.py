"""Rules for dependencies and for Argo's names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import ROOT, Component, Dag, Pipeline, Task

_DAG = "backend/src/v2/compiler/argocompiler/dag.go"
_ARGO = "argoproj/argo-workflows workflow/validate/validate.go (called by CreateRun)"
_TASK_NAME = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]*")
_PARAMETER_NAME = re.compile(r"[-a-zA-Z0-9_]+")
_LONGEST = 128
_DRIVER = "-driver"
_TAKEN = ("entrypoint", "system-container-driver", "system-dag-driver", "system-importer")


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks dependencies, exit tasks and names."""
    for component in pipeline.components.values():
        yield from _component_name(component)
    for dag in pipeline.dags:
        if all(task.is_exit for task in dag.tasks.values()):
            yield Finding(
                "empty-dag",
                f"{dag.component.location}.dag.tasks",
                "The run is refused: a DAG must have a task that is not an exit task.",
                "Add a task, or remove the component.",
                f"{_DAG} DAG",
            )
        for task in dag.tasks.values():
            yield from _task_name(task)
            yield from _dependencies(task)
        yield from _cycle(dag)
        yield from _exit_tasks(dag)


def _component_name(component: Component) -> Iterator[Finding]:
    if component.name == ROOT:
        return
    is_dag = "dag" in component.spec
    if is_dag and component.name in _TAKEN:
        problem = f"{component.name!r} is the name of one of the backend's templates"
    elif is_dag and not _fits(component.name):
        problem = "it names a template, which allows at most 128 letters, digits and hyphens"
    elif component.container is None and not _PARAMETER_NAME.fullmatch(component.name):
        problem = "it becomes part of a parameter's name, which allows letters, digits, '_' and '-'"
    else:
        return
    yield Finding(
        "argo-name",
        component.location,
        f"The run is refused for the component's name: {problem}.",
        "Use letters, digits and hyphens.",
        _ARGO,
    )


def _task_name(task: Task) -> Iterator[Finding]:
    if not _fits(task.name + _DRIVER):
        problem = (
            f"Argo allows letters, digits and hyphens, at most 128 with the backend's {_DRIVER!r}"
        )
    elif (owner := task.name.removesuffix(_DRIVER)) != task.name and owner in task.dag.tasks:
        problem = f"the driver of {owner!r} has this name"
    else:
        return
    yield Finding(
        "argo-name",
        task.location,
        f"The run is refused for the task's name: {problem}.",
        f"Rename the task, for instance to {_renamed(task.name)!r}.",
        _ARGO,
    )


def _fits(name: str) -> bool:
    return _TASK_NAME.fullmatch(name) is not None and len(name) <= _LONGEST


def _renamed(name: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9]+", "-", name).strip("-")[: _LONGEST - len(_DRIVER)]
    return f"{name}-task" if name.endswith(_DRIVER) else name or "task"


def _dependencies(task: Task) -> Iterator[Finding]:
    # Rules for sources find missing producers of inputs; this finds missing names of the list.
    for index, name in enumerate(task.spec.get("dependentTasks", [])):
        location = f"{task.location}.dependentTasks[{index}]"
        other = task.dag.tasks.get(name)
        if other is None:
            yield Finding(
                "unknown-dependency",
                location,
                f"The run is refused: there is no task {name!r} in this DAG.",
                "Correct the name, or remove it from the list.",
                f"{_DAG} depends, {_ARGO}",
            )
        elif other.is_exit and not task.is_exit:
            yield Finding(
                "unknown-dependency",
                location,
                f"The run is refused: {name!r} is an exit task, and other tasks cannot wait "
                "for it.",
                "Remove it from the list.",
                f"{_DAG} DAG",
            )


def _cycle(dag: Dag) -> Iterator[Finding]:
    """One finding per DAG with a cycle, at the first task of the cycle."""
    done: set[str] = set()

    def cycle(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done or name not in dag.tasks:
            return []
        for other in dag.tasks[name].depends_on():
            if found := cycle(other, [*path, name]):
                return found
        done.add(name)
        return []

    for task in dag.tasks.values():
        if found := cycle(task.name, []):
            yield Finding(
                "dependency-cycle",
                f"{dag.component.location}.dag.tasks.{found[0]}",
                f"The run is refused: {' waits for '.join([*found, found[0]])}.",
                "Break the cycle: remove an input or an entry of dependentTasks.",
                _ARGO,
            )
            return


def _exit_tasks(dag: Dag) -> Iterator[Finding]:
    handler: dict[str, str] = {}
    for task in dag.tasks.values():
        if not task.is_exit:
            continue
        names = task.spec.get("dependentTasks", [])
        if not names:
            yield _never(task, "an exit task runs after its dependentTasks, and this one has none")
        for name in names:
            upstream = dag.tasks.get(name)
            if upstream and upstream.component and upstream.component.importer is not None:
                yield _never(task, f"{name!r} is an importer, which has no exit hook")
            if name in handler:
                yield _never(dag.tasks[handler[name]], f"{task.name!r} replaces it after {name!r}")
            handler[name] = task.name


def _never(task: Task, why: str) -> Finding:
    return Finding(
        "exit-task",
        task.location,
        f"The task silently never runs: {why}.",
        "Make one exit task depend on one container or DAG.",
        f"{_DAG} DAG",
    )
