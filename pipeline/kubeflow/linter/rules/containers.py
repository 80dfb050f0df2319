"""Rules for containers: image, command, names, and placeholders, which tasks must give values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from stagecraft.common import kubernetes_syntax
from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Component, Pipeline, Task

_DRIVER = "backend/src/v2/driver/driver.go initPodSpecPatch"
_ARGS = "backend/src/v2/driver/util.go resolveContainerArgs"
_PLACEHOLDERS = "backend/src/v2/component/launcher_v2.go getPlaceholders"
_HASH = "backend/src/v2/compiler/argocompiler/argo.go hashComponentContainer"
_PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")
_PLACEHOLDER = re.compile(r"\{\{\$(?!\}\}|\.outputs\.output_file\}\}).*?\}\}")
"""All but ``{{$}}`` and ``{{$.outputs.output_file}}``, which names the same file as ``{{$}}``."""
_FILLED_IN = re.compile(
    r"\{\{\$\.(inputs|outputs)\.(?:(artifacts)\['([^']+)'\]\.(?:uri|path)"
    r"|(parameters)\['([^']+)'\](?:\.output_file)?)\}\}"
)
"""Placeholders that the launcher knows: side, kind and name."""
_OPERATIONS = ("argostub/createpvc", "argostub/deletepvc")


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks the containers of all components."""
    for component, container, location in pipeline.containers():
        yield from _container(container, location)
        yield from _names(container, location)
        users = pipeline.users(component)
        for task in users[:1]:
            yield from _image(container.get("image", ""), task, f"{location}.image")
        for task in users:
            yield from _placeholders(component, container, task, location)
    yield from _same_container([component for component, _, _ in pipeline.containers()])


def _container(container: dict[str, Any], location: str) -> Iterator[Finding]:
    image = container.get("image", "")
    if not image:
        yield Finding(
            "container-image",
            f"{location}.image",
            "The pod never starts: no image is set, and the backend's placeholder for it is not a "
            "valid image.",
            "Give the container an image.",
            _DRIVER,
        )
    if image in _OPERATIONS:
        return
    if not container.get("command") and not container.get("args"):
        yield Finding(
            "container-command",
            f"{location}.command",
            "The step crashes at its start (command and arguments are empty): the backend does "
            "not use the image's entrypoint.",
            "Give the container a command.",
            "backend/src/v2/component/launcher_v2.go NewLauncherV2",
        )
    if "lifecycle" in container:
        yield Finding(
            "lifecycle-ignored",
            f"{location}.lifecycle",
            "The backend silently ignores it: preCacheCheck never runs, so a file-based ExampleGen "
            "has no span, version or fingerprint, and a cached one returns stale data.",
            "Remove it, and disable caching of the component, or make the changing value a "
            "parameter.",
            "api/v2alpha1/pipeline_spec.proto Lifecycle (nothing under backend/src/v2 reads it)",
        )


def _names(container: dict[str, Any], location: str) -> Iterator[Finding]:
    """Checks the names that Kubernetes validates: the image, and variables."""
    image = container.get("image", "")
    yield from checked_name(f"{location}.image", image, kubernetes_syntax.image(image))
    for index, variable in enumerate(container.get("env", [])):
        name = variable.get("name", "")
        place = f"{location}.env[{index}].name"
        yield from checked_name(place, name, kubernetes_syntax.variable(name))


def checked_name(place: str, value: str, problem: str) -> Iterator[Finding]:
    """The finding of a name or number that Kubernetes refuses; none without a problem."""
    if problem:
        yield Finding(
            "kubernetes-name",
            place,
            f"Kubernetes refuses the pod: {value!r} {problem}.",
            "Correct the value.",
            "kubernetes/kubernetes pkg/apis/core/validation/validation.go ValidatePodSpec",
        )


def _image(image: str, task: Task, location: str) -> Iterator[Finding]:
    found = _PARAMETER.search(image)
    if found and found[1] not in task.inputs("parameters"):
        yield _no_value(location, found[1], task, "resolvePodSpecInputRuntimeParameter")
    elif found and found[0] != image:
        yield Finding(
            "placeholder",
            location,
            "The pod never starts: the parameter's value becomes the whole image, and the "
            "text around it is lost.",
            "Make the parameter the whole name of the image.",
            "backend/src/v2/driver/resolve.go resolvePodSpecInputRuntimeParameter",
        )


def _placeholders(
    component: Component, container: dict[str, Any], task: Task, location: str
) -> Iterator[Finding]:
    for part in ("command", "args"):
        for index, text in enumerate(container.get(part, [])):
            place = f"{location}.{part}[{index}]"
            # The launcher, which knows the outputs, fills in what the driver leaves.
            by_driver = "$.outputs" not in text
            for branch in _branches(text, task):
                names = set(_PARAMETER.findall(branch)) if by_driver else set()
                for name in sorted(names.difference(task.inputs("parameters"))):
                    yield _no_value(place, name, task, "resolveContainerArgs")
                for match in _PLACEHOLDER.finditer(branch):
                    found = _FILLED_IN.fullmatch(match[0])
                    if by_driver and _PARAMETER.fullmatch(match[0]):
                        continue
                    if found is None or not _known(found, component, task):
                        yield _stays(place, match[0], task)


def _branches(text: str, task: Task) -> list[str]:
    """The text, or the texts of the branch of an IfPresent that the task takes."""
    if not text.strip().startswith('{"IfPresent":'):
        return [text]
    try:
        clause = json.loads(text)["IfPresent"]
        present = clause["InputName"] in task.inputs("parameters")
        chosen = clause.get("Then" if present else "Else") or []
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [chosen] if isinstance(chosen, str) else [each for each in chosen if str(each) == each]


def _known(found: re.Match[str], component: Component, task: Task) -> bool:
    side, kind, name = found[1], found[2] or found[4], found[3] or found[5]
    if (side, kind) == ("inputs", "parameters"):
        default = component.inputs(kind).get(name, {}).get("defaultValue")
        return name in task.inputs(kind) or default is not None
    return name in (task.inputs(kind) if side == "inputs" else component.outputs(kind))


def _stays(location: str, placeholder: str, task: Task) -> Finding:
    return Finding(
        "placeholder",
        location,
        f"The step gets the text {placeholder!r} itself: the backend does not fill it in at "
        f"{task.location}.",
        "Name an existing input or output, its .uri or .path, or give the value as a parameter.",
        _PLACEHOLDERS,
    )


def _no_value(location: str, name: str, task: Task, function: str) -> Finding:
    file = _ARGS if function in _ARGS else "backend/src/v2/driver/resolve.go " + function
    return Finding(
        "placeholder",
        location,
        f"The driver fails: {task.location} gets no parameter {name!r}, and placeholders ignore "
        "defaults.",
        f"Give the task {name!r}, or remove the placeholder.",
        file,
    )


def _same_container(containers: list[Component]) -> Iterator[Finding]:
    """The backend stores component specs by a hash of the container, and keeps the first one."""
    for index, component in enumerate(containers):
        for other in containers[:index]:
            if component.container != other.container:
                continue
            definitions = ("inputDefinitions", "outputDefinitions")
            if all(component.spec.get(each) == other.spec.get(each) for each in definitions):
                continue
            yield Finding(
                "same-container",
                f"{component.executor_location}.container",
                f"This container equals the container of {other.location}. The backend stores "
                "definitions by container, so one of these components runs with the inputs and "
                "outputs of the other.",
                "Make the containers differ, for instance by an environment variable.",
                _HASH,
            )
            break
