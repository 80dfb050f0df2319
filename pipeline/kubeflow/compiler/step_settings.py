"""Gives each step its settings: those of ``kubeflow:``, and what the step needs besides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.orchestration.pipeline import Pipeline
from tfx.types import Artifact
from tfx.types.standard_artifacts import ModelBlessing, PushedModel

from stagecraft.components import Trainer
from stagecraft.components.kubernetes.job_folder import exchange
from stagecraft.components.kubernetes.jobs.settings import CLUSTER, ClusterSettings, PodSettings
from stagecraft.pipeline.beam import arguments
from stagecraft.pipeline.beam.in_process import runs_elsewhere
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.compiler import platform
from stagecraft.pipeline.kubeflow.spec import Json
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings, Step, stores

_EXECUTOR = "--executor_class_path"

_WITHOUT_RESOURCES: dict[str, Any] = {
    "cpu": None,
    "memory": None,
    "gpus": 0,
    "shared_memory": None,
    "node_selector": {},
    "tolerations": (),
}
"""A step that only waits for its job gets volumes, secrets and variables, and no resources."""


def apply(
    spec: Json,
    pipeline: Pipeline,
    nodes: Sequence[Any],
    settings: KubeflowSettings,
    drivers: Mapping[str, str],
    warn: Callable[[str], object],
) -> Json:
    """Writes the settings of all steps into the spec.

    Args:
        spec: with the pipeline root and the defaults of parameters, before
            :func:`~.spec.complete_arguments`.
        nodes: of the pipeline, and its exit handler.
        drivers: name of a step that runs a driver -> ID of the component that has it.
        warn: called with each warning.

    Returns:
        The entry of each executor in the platform document.
    """
    settings.check_names([node.id for node in nodes])
    components = {node.id: node for node in nodes}
    version = settings.backend_version
    executors: Json = {}
    without_keys: dict[str, list[str]] = {}
    always_pulled: dict[str, None] = {}
    for step in list(specs.steps(spec)):
        name, runs_driver = drivers.get(step.name, step.name), step.name in drivers
        node = components.get(name)
        wanted = settings.step(name)
        of_settings = step.is_ours or settings.has_own_image(name)
        if not of_settings:
            wanted = wanted.model_copy(update={"image": None})  # its author named one
        if runs_driver:  # it only reads metadata
            wanted = wanted.model_copy(update={"gpus": 0, "shared_memory": None})
        job = _starts_job(node)
        opened = _stores(spec, step, [settings.job.folder or ""] if job else [])
        wanted = wanted.with_store_keys(opened)
        for scheme in filter(wanted.lacks_keys, opened):
            without_keys.setdefault(scheme, []).append(name)
        if not runs_driver:
            if job:
                wanted = _of_trainer(node, wanted, settings)
            wanted = _with_beam_args(step, node, pipeline, wanted)
        platform.check(name, wanted, version)
        executors[step.component["executorLabel"]] = platform.apply(step, wanted, version)
        image = (step.container or {}).get("image", "")
        if of_settings and image and wanted.pull_policy(image) is None:
            always_pulled[image] = None
    for scheme, names in sorted(without_keys.items()):
        warn(
            f"{', '.join(sorted({*names}))}: open {scheme}:// URIs, and their settings name no "
            "credentials. These steps work only if the container image or the cluster provides "
            "credentials."
        )
    for image in always_pulled:
        warn(
            f"{image}: Kubernetes pulls an image without a tag, or with the tag latest, before "
            "each step. If no registry has the image, the first step never starts. Give the "
            "image a version as its tag, and set kubeflow.image."
        )
    return executors


def _starts_job(node: Any) -> bool:
    """Whether a component is this project's Trainer with ``parallel.launcher: kubernetes``."""
    return isinstance(node, Trainer) and node.exec_properties["parallel_launcher"] == "kubernetes"


def _of_trainer(node: Any, wanted: Step, settings: KubeflowSettings) -> Step:
    """Splits the Trainer's settings between its step, returned, and the pods of its job."""
    pods = PodSettings.model_validate(
        {name: getattr(wanted, name) for name in PodSettings.model_fields}
    )
    exchange.check(settings.job.folder, pods.volumes, "kubeflow.job.folder")
    root = node.exec_properties["checkpoint_root"]
    exchange.check(str(root), pods.volumes, "kubeflow.checkpoints")
    cluster = ClusterSettings(image=wanted.image or settings.image, job=settings.job, pod=pods)
    variable = {CLUSTER: cluster.model_dump_json(exclude_defaults=True)}
    return wanted.model_copy(update={**_WITHOUT_RESOURCES, "env": {**wanted.env, **variable}})


def _with_beam_args(step: specs.Step, node: Any, pipeline: Pipeline, wanted: Step) -> Step:
    """Moves Beam's arguments from a step's container into its environment.

    The backend's cache key has the arguments of the container, and not its environment. Arguments
    of options that Beam does not know may change results, and stay.
    """
    if not isinstance(node, BaseComponent) or not step.is_ours:
        return wanted
    executor: Any = node.executor_spec
    own = isinstance(executor, BeamExecutorSpec)
    given = list(executor.beam_pipeline_args if own else pipeline.beam_pipeline_args)
    if not given:
        return wanted
    args = step.executor["container"]["args"]
    [start] = [i for i in range(len(args)) if args[i : i + len(given)] == given]
    if not issubclass(executor.executor_class, BaseBeamExecutor):  # TFX passes it none
        del args[start : start + len(given)]
        return wanted
    known, args[start : start + len(given)] = arguments.split(given)
    return wanted.model_copy(update={"env": {**wanted.env, specs.BEAM_ARGS: json.dumps(known)}})


def _stores(spec: Json, step: specs.Step, further: Iterable[str]) -> set[str]:
    """Schemes of the object stores that a step of this project opens itself.

    The launcher copies a step's artifacts, and nothing else. A step that looks up the last blessed
    model, pushes, reads data of the user, or runs Beam on workers elsewhere opens the store.

    Args:
        further: addresses that the step opens and that are not in its parameters.
    """
    if not step.is_ours:
        return set()
    sources = [*step.sources("parameters").values()]
    steps = {each.name: each for each in specs.steps(spec)}
    for name, source in step.sources("artifacts").items():
        if _is_of(step.inputs("artifacts")[name], PushedModel):
            # A model at the address that its producer got.
            producer = steps[source["taskOutputArtifact"]["producerTask"]]
            sources += producer.sources("parameters").values()
    defaults = specs.inputs(spec["root"], "parameters")
    names = {source.get("componentInputParameter") for source in sources}
    addresses = [*further, *_texts(sources)]
    addresses += _texts([defaults[name].get("defaultValue") for name in names & defaults.keys()])
    args = step.executor["container"]["args"]
    if (
        specs.LATEST_BLESSED in args
        or specs.SPAN_WINDOW in args
        or specs.RESOLVED_INPUTS in args
        # It records blessed or pushed models below the pipeline root.
        or any(
            _is_of(output, ModelBlessing) or _is_of(output, PushedModel)
            for output in step.outputs("artifacts").values()
        )
        # Such a step gets addresses in place of copies, see the entrypoint.
        or (_EXECUTOR in args and runs_elsewhere(args[args.index(_EXECUTOR) + 1], args))
    ):
        addresses.append(spec["defaultPipelineRoot"])
    return stores(addresses)


def _is_of(definition: Json, kind: type[Artifact]) -> bool:
    """Whether an artifact is of a type, by its definition in a component."""
    return kind.TYPE_NAME in definition["artifactType"].get("instanceSchema", "")


def _texts(value: Any) -> Iterator[str]:
    """The texts in JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
