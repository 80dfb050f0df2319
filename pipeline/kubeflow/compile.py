"""Compiles the project's pipeline for Kubeflow, with parameters that a run can change."""

from __future__ import annotations

import logging
import pathlib
import posixpath
from collections.abc import Callable
from typing import Any

from tfx.dsl.components.common.resolver import ResolverStrategy
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.pipeline import Pipeline

from stagecraft.common.errors import SettingError
from stagecraft.components import LatestBlessedBaseline
from stagecraft.pipeline.checks import preflight
from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
from stagecraft.pipeline.pipeline import NO_HOOKS, Hooks, Places, assemble
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.trainer_module.models import build_model

_log = logging.getLogger(__name__)

_TRAINING = {
    "train": ("epochs", "steps", "learning_rate", "batch_size", "seed"),
    "parallel": ("strategy", "replicas", "stages", "microbatches"),
}
"""Runtime parameters. The Trainer refuses a topology that does not fit its step's resources."""


def create_pipeline(
    settings: PipelineSettings,
    baseline_strategy: type[ResolverStrategy] = LatestBlessedBaseline,
    hooks: Hooks = NO_HOOKS,
) -> Pipeline:
    """The pipeline, with artifacts below ``kubeflow.pipeline_root`` and runtime parameters."""
    root = settings.kubeflow.pipeline_root
    places = Places(
        pipeline_root=root,
        checkpoints=settings.kubeflow.checkpoints,
        serving=settings.push.directory or posixpath.join(root, "serving", settings.name),
    )
    parameters = {
        name: RuntimeParameter(name=name, ptype=type(default), default=default)
        for name, default in defaults(settings).items()
    }
    return assemble(settings, places, parameters, baseline_strategy, hooks)


def compile_pipeline(
    settings: PipelineSettings,
    output: pathlib.Path,
    on_warning: Callable[[str], object] = _log.warning,
    create: Callable[[PipelineSettings], Pipeline] = create_pipeline,
) -> None:
    """Writes the pipeline to a YAML file.

    Args:
        create: :func:`create_pipeline`, or a project's function.
    """
    pipeline = checked_pipeline(settings, create)
    runner = KubeflowRunner(
        settings.kubeflow,
        str(output.parent),
        output.name,
        descriptions=_descriptions(settings),
        on_warning=on_warning,
    )
    runner.run(pipeline)


def checked_pipeline(
    settings: PipelineSettings, create: Callable[[PipelineSettings], Pipeline]
) -> Pipeline:
    """Checks the settings, and makes the pipeline."""
    with build_model.files_shared():  # the check and the pipeline share the model's files
        check(settings)
        return create(settings)


def check(settings: PipelineSettings) -> None:
    """Refuses a training that the Trainer's step cannot run."""
    preflight.check(settings)
    if settings.data.window > 1 and settings.transform.materialize:
        problem = "gives Kubeflow one artifact for each span of data.window, and it passes on one"
        raise SettingError("transform.materialize", True, problem, "transform.materialize: false")
    parallel, gpus = settings.parallel, settings.kubeflow.step("Trainer").gpus
    needed = parallel.devices_per_worker
    remote = parallel.found.remote_devices
    if remote or parallel.virtual_devices or needed <= max(gpus, 1):
        return
    raise SettingError(
        "kubeflow.steps.Trainer.gpus",
        gpus,
        f"is too few for {parallel.replicas} replicas × {parallel.stages} stages"
        + (f" × {parallel.shards} shards" if parallel.shards > 1 else ""),
        f"kubeflow.steps.Trainer.gpus: {needed}, or parallel.virtual_devices: {needed} for logical "
        "CPU devices",
    )


def defaults(settings: PipelineSettings) -> dict[str, Any]:
    """Defaults of all runtime parameters, by flat name; 0 means none."""
    training = {
        f"{section}_{name}": getattr(getattr(settings, section), name) or 0
        for section, names in _TRAINING.items()
        # ParityGate proves only the compiled topology.
        if section == "train" or not settings.parity.enabled
        for name in names
    }
    training["train_epochs"] = float(training["train_epochs"])
    # The compiled schema has the names of the classes; the sample's differ.
    data = {} if settings.data.source == "sample" else {"data_source": settings.data.source}
    if settings.data.has_spans:
        data["data_span"] = settings.data.span
    return data | training


def _descriptions(settings: PipelineSettings) -> dict[str, str]:
    result = {}
    for name in defaults(settings):
        section, _, field = name.partition("_")
        fields = type(getattr(settings, section)).model_fields
        result[name] = fields[field].description or ""
    result["train_steps"] += "; 0: as many as train_epochs makes"
    return result
