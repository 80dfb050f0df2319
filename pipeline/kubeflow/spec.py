"""The compiled pipeline as the dictionary that its YAML shows, and what steps are made of.

Protocol: ``pipeline_spec.proto`` of kubeflow/pipelines (``api/v2alpha1``), in its JSON names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]

ENTRYPOINT = ("python", "-m", "stagecraft.pipeline.kubeflow.entrypoint")

RUN, RESOLVE, LATEST_BLESSED = "run", "resolve", "latest-blessed"
"""What the entrypoint does: runs an executor, a driver, or looks the last blessed model up."""

HEAD = "# PIPELINE DEFINITION"
"""First line of a compiled file, as the KFP SDK writes it."""

DRIVER_OUTPUT = "driver_output"
"""Parameter: what a driver found, a ``DriverOutput`` as JSON."""

RESOLVED_INPUTS = "--resolved_inputs"
"""Argument: input artifacts that come as parameters; their types by name, as JSON."""

LOOKUP = "lookup"
"""Output artifact of a step that looks something up: what it found, for people to see."""


class Step(NamedTuple):
    """A task with all that belongs to it; changing a field's content changes the spec."""

    name: str
    task: Json
    component: Json
    executor: Json
    """Of the deployment spec: ``{"container": …}`` or another kind."""

    @property
    def container(self) -> Json | None:
        """None for importers and the like."""
        return self.executor.get("container")


def steps(spec: Json) -> Iterator[Step]:
    """All steps of the pipeline, as they stand in the spec."""
    for name, task in spec["root"]["dag"]["tasks"].items():
        component = spec["components"][task["componentRef"]["name"]]
        executor = spec["deploymentSpec"]["executors"][component["executorLabel"]]
        yield Step(name, task, component, executor)


def add(spec: Json, name: str, *, image: str, args: list[str], task: Json, component: Json) -> None:
    """Adds a step that runs our entrypoint with ``args``."""
    label = f"{name}_executor"
    spec["root"]["dag"]["tasks"][name] = {
        "taskInfo": {"name": name},
        "componentRef": {"name": name},
        **task,
    }
    spec["components"][name] = {"executorLabel": label, **component}
    spec["deploymentSpec"]["executors"][label] = {
        "container": {"image": image, "command": list(ENTRYPOINT), "args": args}
    }


def parameters(step: Step) -> Json:
    """Types of the step's input parameters, by name; to be added to."""
    definitions: Json = step.component.setdefault("inputDefinitions", {})
    return definitions.setdefault("parameters", {})


def artifacts(step: Step) -> Json:
    """Types of the step's input artifacts, by name."""
    definitions: Json = step.component.get("inputDefinitions", {})
    return definitions.get("artifacts", {})


def inputs(step: Step, kind: str) -> Json:
    """Where the step's ``parameters`` or ``artifacts`` come from, by name; to be added to."""
    return step.task.setdefault("inputs", {}).setdefault(kind, {})


def depend(step: Step, on: str) -> None:
    """Makes the step wait for another."""
    step.task["dependentTasks"] = sorted({*step.task.get("dependentTasks", ()), on})


def from_task(producer: str, key: str) -> Json:
    """An input parameter that is another step's output parameter."""
    return {"taskOutputParameter": {"producerTask": producer, "outputParameterKey": key}}


def is_ours(step: Step) -> bool:
    """Whether the step runs our entrypoint, not a container of the user's."""
    command = (step.container or {}).get("command", ())
    return tuple(command)[: len(ENTRYPOINT)] == ENTRYPOINT


def tell(spec: Json, root: str) -> None:
    """Tells each of our containers what the backend does not, or tells wrong.

    Inputs come without their types, outputs with one more for the log (``provisionOutputs`` in
    backend/src/v2/driver/driver.go), and which root a run has is up to who starts it.

    Args:
        spec: the compiled pipeline.
        root: address below which all runs of the pipeline find what they have to know.
    """
    folder = f"{root.rstrip('/')}/{spec['pipelineInfo']['name']}"
    for step in steps(spec):
        if is_ours(step):
            args = step.executor["container"]["args"]
            definitions = step.component.get("inputDefinitions", {})
            outputs = step.component.get("outputDefinitions", {}).get("artifacts", {})
            _set(args, "--task", step.name)
            _set(args, "--pipeline_folder", folder)
            _set(args, "--outputs", json.dumps(sorted(outputs)))
            _set(
                args, "--json_serialized_inputs_spec_args", json.dumps(definitions, sort_keys=True)
            )


def _set(args: list[str], option: str, value: str) -> None:
    if option in args:
        args[args.index(option) + 1] = value
    else:
        args += [option, value]


def name_plainly(spec: Json) -> None:
    """Gives steps names that Argo takes: letters, digits and ``-``.

    The display name stays. Argo: ``workflowFieldNameFmt`` in workflow/validate/validate.go.
    """
    tasks = spec["root"]["dag"]["tasks"]
    plain = {name: re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-") for name in tasks}
    for name, other in plain.items():
        if name != other and (other in tasks or list(plain.values()).count(other) > 1):
            raise ValueError(f"the steps {name!r} and {other!r} have the same name on Kubeflow")
    for task in tasks.values():
        task["dependentTasks"] = [plain[name] for name in task.get("dependentTasks", ())]
        if not task["dependentTasks"]:
            del task["dependentTasks"]
        for kind in ("parameters", "artifacts"):
            for source in task.get("inputs", {}).get(kind, {}).values():
                for output in ("taskOutputParameter", "taskOutputArtifact"):
                    if output in source:
                        source[output]["producerTask"] = plain[source[output]["producerTask"]]
    spec["root"]["dag"]["tasks"] = {plain[name]: task for name, task in tasks.items()}


def whole_numbers(value: Any) -> Any:
    """The same with ``10`` for ``10.0``: a protobuf Struct knows doubles only."""
    if isinstance(value, dict):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
