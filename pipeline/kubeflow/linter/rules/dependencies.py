"""Which task waits for which, and what Argo takes as a name."""

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
    """Dependencies, exit tasks, and the names that become Argo's."""
    for component in pipeline.components.values():
        yield from _component_name(component)
    for dag in pipeline.dags:
        if all(task.is_exit for task in dag.tasks.values()):
            yield Finding(
                "empty-dag",
                f"{dag.component.location}.dag.tasks",
                "The run is refused: a DAG must have a task that is no exit task.",
                "Put a task into it, or take the component out.",
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
        problem = f"{component.name!r} is the name of a template of the backend's own"
    elif is_dag and not _fits(component.name):
        problem = "it becomes a template's, and those are letters, digits and hyphens, 128 at most"
    elif component.container is None and not _PARAMETER_NAME.fullmatch(component.name):
        problem = "it becomes part of a parameter's, and those are letters, digits, '_' and '-'"
    else:
        return
    yield Finding(
        "argo-name",
        component.location,
        f"The run is refused for the component's name: {problem}.",
        "Rename the component; letters, digits and hyphens always pass.",
        _ARGO,
    )


def _task_name(task: Task) -> Iterator[Finding]:
    if not _fits(task.name + _DRIVER):
        problem = (
            "Argo's task names are letters, digits and hyphens, and 128 at most with the "
            f"backend's {_DRIVER!r}"
        )
    elif (owner := task.name.removesuffix(_DRIVER)) != task.name and owner in task.dag.tasks:
        problem = f"the driver of {owner!r} has that name"
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
    # Producers that are not there are told where the input is; here are those listed.
    for index, name in enumerate(task.spec.get("dependentTasks", [])):
        location = f"{task.location}.dependentTasks[{index}]"
        other = task.dag.tasks.get(name)
        if other is None:
            yield Finding(
                "unknown-dependency",
                location,
                f"The run is refused: there is no task {name!r} in this DAG.",
                "Correct the name, or take it out of the list.",
                f"{_DAG} depends, {_ARGO}",
            )
        elif other.is_exit and not task.is_exit:
            yield Finding(
                "unknown-dependency",
                location,
                f"The run is refused: {name!r} is an exit task, which is not among the tasks that "
                "others can wait for.",
                "Take it out of the list.",
                f"{_DAG} DAG",
            )


def _cycle(dag: Dag) -> Iterator[Finding]:
    """One finding for each DAG that goes round; at its first task that is part of a circle."""
    done: set[str] = set()

    def circle(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done or name not in dag.tasks:
            return []
        for other in dag.tasks[name].depends_on():
            if found := circle(other, [*path, name]):
                return found
        done.add(name)
        return []

    for task in dag.tasks.values():
        if found := circle(task.name, []):
            yield Finding(
                "dependency-cycle",
                f"{dag.component.location}.dag.tasks.{found[0]}",
                f"The run is refused: {' waits for '.join([*found, found[0]])}.",
                "Break the circle: take one of the inputs or dependentTasks away.",
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
            yield _never(task, "an exit task runs after its dependentTasks, and it has none")
        for name in names:
            upstream = dag.tasks.get(name)
            if upstream and upstream.component and upstream.component.importer is not None:
                yield _never(task, f"{name!r} is an importer, and those have no exit hook")
            if name in handler:
                yield _never(
                    dag.tasks[handler[name]], f"{task.name!r} takes its place after {name!r}"
                )
            handler[name] = task.name


def _never(task: Task, why: str) -> Finding:
    return Finding(
        "exit-task",
        task.location,
        f"The task never runs, without a word: {why}.",
        "Let one exit task depend on one task that is a container or a DAG.",
        f"{_DAG} DAG",
    )
