"""The pipeline of a user's project: Stagecraft's components, with the project's own ones."""

from __future__ import annotations

import pathlib
from typing import Literal

from tfx.orchestration.pipeline import Pipeline

from stagecraft.pipeline import pipeline
from stagecraft.pipeline.kubeflow import compile as kubeflow
from stagecraft.pipeline.pipeline import Add, Hooks, Replace
from stagecraft.pipeline.settings import PipelineSettings

Engine = Literal["local", "kubeflow", "vertex"]


def create_pipeline(
    settings: PipelineSettings,
    output: str | pathlib.Path | None = None,
    *,
    engine: Engine = "local",
    replace: Replace | None = None,
    add: Add | None = None,
) -> Pipeline:
    """Builds the pipeline that ``stagecraft run`` or ``stagecraft compile`` builds, and changes it.

    Args:
        settings: all of them count, as for the commands.
        output: folder for ``pipeline_root``, ``metadata.db``, ``checkpoints`` and ``serving``; only
            for ``local``, and needed there. The other engines take ``kubeflow.pipeline_root``.
        engine: what runs the pipeline. Vertex AI has no TrainingReport.
        replace: called with each component, and a mapping of those before it by their IDs; returns
            this component, or one in its place that has its outputs.
        add: called with a mapping of all components by their IDs; returns further ones.

    Raises:
        HookError: ``replace`` or ``add`` return something else.
        UserError: a setting does not fit the engine, or the output is another pipeline's.
    """
    hooks = Hooks(replace, add)
    if engine == "kubeflow":
        return kubeflow.create_pipeline(settings, hooks=hooks)
    if engine == "vertex":
        from stagecraft.contrib.vertex import runner

        return runner.create_pipeline(settings, hooks)
    if output is None:
        raise TypeError("create_pipeline() needs output, a folder, for the engine 'local'")
    return pipeline.create_pipeline(settings, output, hooks)
