"""Rules for containers: image, command, placeholders, which each task must give a value."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Component, Pipeline, Task

_DRIVER = "backend/src/v2/driver/driver.go initPodSpecPatch"
_ARGS = "backend/src/v2/driver/util.go resolveContainerArgs"
_PLACEHOLDERS = "backend/src/v2/component/launcher_v2.go getPlaceholders"
_HASH = "backend/src/v2/compiler/argocompiler/argo.go hashComponentContainer"
_PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['(.+?)'\]\}\}")
_LAUNCHERS = re.compile(r"\{\{\$\.(inputs|outputs)\.(parameters|artifacts)\['(.+?)'\]\.\w+\}\}")
_OPERATIONS = ("argostub/createpvc", "argostub/deletepvc")


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks the containers of all components."""
    containers = [each for each in pipeline.components.values() if each.container is not None]
    for component in containers:
        users = [task for task in pipeline.tasks if task.component is component]
        yield from _container(component)
        for task in users[:1]:
            yield from _image(component, task)
        for task in users:
            yield from _placeholders(component, task)
    yield from _same_container(containers)


def _container(component: Component) -> Iterator[Finding]:
    assert component.container is not None
    container, location = component.container, f"{component.executor_location}.container"
    image = container.get("image", "")
    if not image:
        yield Finding(
            "container-image",
            f"{location}.image",
            "The pod never starts: without an image, the placeholder of the backend remains, "
            "which is not an image.",
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


def _image(component: Component, task: Task) -> Iterator[Finding]:
    assert component.container is not None
    image = component.container.get("image", "")
    found = _PARAMETER.search(image)
    location = f"{component.executor_location}.container.image"
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


def _placeholders(component: Component, task: Task) -> Iterator[Finding]:
    assert component.container is not None
    for part in ("command", "args"):
        for index, text in enumerate(component.container.get(part, [])):
            location = f"{component.executor_location}.container.{part}[{index}]"
            conditional = text.strip().startswith('{"IfPresent":')
            # The launcher, which knows the outputs, replaces these.
            names = [] if "$.outputs" in text or conditional else _PARAMETER.findall(text)
            for name in names:
                if name not in task.inputs("parameters"):
                    yield _no_value(location, name, task, "resolveContainerArgs")
            for side, kind, name in _LAUNCHERS.findall(text):
                known = task.inputs(kind) if side == "inputs" else component.outputs(kind)
                if name not in known:
                    yield Finding(
                        "placeholder",
                        location,
                        f"The step gets the placeholder itself: there is no {side} "
                        f"{kind.removesuffix('s')} {name!r} at {task.location}.",
                        "Name an existing one, or define it.",
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
                f"One of them runs with the inputs and outputs of the other: it equals the "
                f"container of {other.location}, and the backend stores definitions by container.",
                "Make the containers differ, for instance by an environment variable.",
                _HASH,
            )
            break
