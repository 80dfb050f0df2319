"""Rules for tasks: names, retries, iterators, conditions on importers."""

from __future__ import annotations

import json
from collections.abc import Iterator

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Pipeline, Task

_DAG = "backend/src/v2/compiler/argocompiler/dag.go"
_RETRY = "backend/src/v2/compiler/argocompiler/container.go getTaskRetryParametersWithValues"


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks all tasks."""
    for task in pipeline.tasks:
        is_importer = task.component is not None and task.component.importer is not None
        if not is_importer and not task.spec.get("taskInfo", {}).get("name"):
            yield Finding(
                "task-info-name",
                f"{task.location}.taskInfo.name",
                "The driver of the task fails: it requires this name.",
                "Give it the task's own name.",
                "backend/src/v2/driver/driver.go validateNonRoot",
            )
        if is_importer and task.condition:
            yield Finding(
                "importer-condition",
                f"{task.location}.triggerPolicy.condition",
                "The run is refused: an importer has no driver to evaluate a condition.",
                "Move the condition to the tasks that use the import.",
                f"{_DAG} task",
            )
        yield from _iterator(task)
        yield from _retries(task)


def _iterator(task: Task) -> Iterator[Finding]:
    if "artifactIterator" in task.spec:
        yield Finding(
            "artifact-iterator",
            f"{task.location}.artifactIterator",
            "The run is refused: artifact iterators are not implemented.",
            "Iterate over a parameter.",
            f"{_DAG} DAG",
        )
    iterator = task.spec.get("parameterIterator")
    if iterator is None:
        return
    items = iterator.get("items", {})
    if not iterator.get("itemInput"):
        problem = "itemInput, the input for each item, is missing"
    elif "raw" in items:
        try:
            values = json.loads(items["raw"])
        except json.JSONDecodeError as error:
            problem = f"items.raw is not JSON ({error})"
        else:
            problem = "" if isinstance(values, list) else "items.raw is not a list"
    elif not items.get("inputParameter"):
        problem = "items has neither raw nor inputParameter"
    elif items["inputParameter"] not in task.inputs("parameters"):
        problem = f"the task gets no parameter {items['inputParameter']!r}"
    else:
        problem = ""
    if problem:
        yield Finding(
            "parameter-iterator",
            f"{task.location}.parameterIterator",
            f"The driver of the task fails: {problem}.",
            "Give items.raw a JSON list, or items.inputParameter a parameter of the task.",
            "backend/src/v2/driver/dag.go DAG",
        )


def _retries(task: Task) -> Iterator[Finding]:
    policy = task.spec.get("retryPolicy")
    if policy is None:
        return
    durations = {
        name: float(policy[name][:-1])
        for name in ("backoffDuration", "backoffMaxDuration")
        if name in policy
    }
    problems = {
        "maxRetryCount": "a count below 0" if policy.get("maxRetryCount", 0) < 0 else "",
        "backoffFactor": "a factor below 0" if policy.get("backoffFactor", 0.0) < 0 else "",
    }
    for name, seconds in durations.items():
        if seconds < 0:
            problems[name] = "a time below 0"
        elif not seconds.is_integer():
            problems[name] = "whole seconds only; the backend drops the fraction"
    first, longest = durations.get("backoffDuration", 0), durations.get("backoffMaxDuration", 0)
    if 0 < longest < first:
        problems["backoffMaxDuration"] = f"less than backoffDuration ({first:g} s): no retry at all"
    for name, problem in problems.items():
        if problem:
            yield Finding(
                "retry-policy",
                f"{task.location}.retryPolicy.{name}",
                f"Argo ignores it, or fails the step: {problem}.",
                "Use whole numbers, 0 or more. backoffMaxDuration must not be below "
                "backoffDuration.",
                _RETRY,
            )
