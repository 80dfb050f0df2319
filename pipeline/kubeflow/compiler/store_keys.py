"""Gives steps the keys of the object stores that they reach without the launcher.

The launcher copies a step's artifacts, and nothing else. A step that looks up the last blessed
model, pushes, reads data of the user, or runs Beam on workers elsewhere opens the store itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tfx.types.standard_artifacts import ModelBlessing, PushedModel

from stagecraft.pipeline.beam.in_process import runs_elsewhere
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.spec import Json
from stagecraft.pipeline.settings.kubeflow import Step, stores

_EXECUTOR = "--executor_class_path"


def add(spec: Json, step: specs.Step, wanted: Step, further: Iterable[str] = ()) -> Step:
    """Adds the keys of Kubeflow's own store to the settings of a step: ``Step.with_store_keys``.

    Args:
        spec: with the pipeline root and the defaults of parameters.
        step: before :func:`spec.complete_arguments`.
        wanted: the step's settings.
        further: addresses that the step opens and that are not in its parameters.
    """
    return wanted.with_store_keys(_stores(spec, step, further))


def without_keys(
    spec: Json, step: specs.Step, wanted: Step, further: Iterable[str] = ()
) -> set[str]:
    """Schemes of the stores that a step opens although its settings name no credentials."""
    return {scheme for scheme in _stores(spec, step, further) if wanted.lacks_keys(scheme)}


def _stores(spec: Json, step: specs.Step, further: Iterable[str]) -> set[str]:
    """Schemes of the stores that a step of this project opens itself."""
    if not specs.is_ours(step):
        return set()
    sources = [*_parameters(step.task)]
    tasks = spec["root"]["dag"]["tasks"]
    for name, source in step.task.get("inputs", {}).get("artifacts", {}).items():
        schema = specs.artifacts(step)[name]["artifactType"].get("instanceSchema", "")
        if PushedModel.TYPE_NAME in schema:  # a model at the address that its producer got
            sources += _parameters(tasks[source["taskOutputArtifact"]["producerTask"]])
    defaults = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    names = {source.get("componentInputParameter") for source in sources}
    addresses = [*further, *_texts(sources)]
    addresses += _texts([defaults[name].get("defaultValue") for name in names & defaults.keys()])
    args = step.executor["container"]["args"]
    if _reads_records(args) or _blesses(step.component) or _runs_beam_elsewhere(args):
        addresses.append(spec["defaultPipelineRoot"])
    return stores(addresses)


def _parameters(task: Json) -> Iterable[Json]:
    """Sources of a task's parameters."""
    parameters: dict[str, Json] = task.get("inputs", {}).get("parameters", {})
    return parameters.values()


def _reads_records(args: list[str]) -> bool:
    return specs.LATEST_BLESSED in args or specs.RESOLVED_INPUTS in args


def _runs_beam_elsewhere(args: list[str]) -> bool:
    """Whether a step gets addresses in place of copies, see the entrypoint."""
    path = args[args.index(_EXECUTOR) + 1] if _EXECUTOR in args else None
    return path is not None and runs_elsewhere(path, args)


def _blesses(component: Json) -> bool:
    outputs = component.get("outputDefinitions", {}).get("artifacts", {}).values()
    return any(
        ModelBlessing.TYPE_NAME in output["artifactType"].get("instanceSchema", "")
        for output in outputs
    )


def _texts(value: Any) -> Iterator[str]:
    """The texts in JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
