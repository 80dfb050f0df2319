"""Settings, the pipeline, its runners and the command line.

The names below are for a user's own ``pipeline.py`` and runners, such as those that ``stagecraft
init`` writes. Each is imported on first use.
"""

from __future__ import annotations

import pkgutil
import typing

if typing.TYPE_CHECKING:
    from stagecraft.pipeline.beam import beam_args as beam_args
    from stagecraft.pipeline.checks.model_arguments import find as model_arguments
    from stagecraft.pipeline.checks.preflight import check as check_model
    from stagecraft.pipeline.data import example_gen_of as example_gen_of
    from stagecraft.pipeline.data import preprocessing as preprocessing_of
    from stagecraft.pipeline.evaluation import eval_config as eval_config
    from stagecraft.pipeline.kubeflow.compile import check as check_kubeflow
    from stagecraft.pipeline.kubeflow.compile import compile_pipeline as compile_for_kubeflow
    from stagecraft.pipeline.kubeflow.runner import KubeflowRunner as KubeflowRunner
    from stagecraft.pipeline.local.runners import LocalRunner as LocalRunner
    from stagecraft.pipeline.project import create_pipeline as create_pipeline
    from stagecraft.pipeline.settings.tree import PipelineSettings as PipelineSettings
    from stagecraft.pipeline.settings.tree import load as load_settings
    from stagecraft.pipeline.tfx_command.engine_option import engine as tfx_engine
    from stagecraft.pipeline.vertex.compile import compile_pipeline as compile_for_vertex
    from stagecraft.pipeline.vertex.runner import VertexRunner as VertexRunner
    from stagecraft.trainer_module.parallel.topology import configure_devices as configure_devices

__all__ = [
    "KubeflowRunner",
    "LocalRunner",
    "PipelineSettings",
    "VertexRunner",
    "beam_args",
    "check_kubeflow",
    "check_model",
    "compile_for_kubeflow",
    "compile_for_vertex",
    "configure_devices",
    "create_pipeline",
    "eval_config",
    "example_gen_of",
    "load_settings",
    "model_arguments",
    "preprocessing_of",
    "tfx_engine",
]

_PLACES = {
    "KubeflowRunner": "pipeline.kubeflow.runner:KubeflowRunner",
    "LocalRunner": "pipeline.local.runners:LocalRunner",
    "PipelineSettings": "pipeline.settings.tree:PipelineSettings",
    "VertexRunner": "pipeline.vertex.runner:VertexRunner",
    "beam_args": "pipeline.beam:beam_args",
    "check_kubeflow": "pipeline.kubeflow.compile:check",
    "check_model": "pipeline.checks.preflight:check",
    "compile_for_kubeflow": "pipeline.kubeflow.compile:compile_pipeline",
    "compile_for_vertex": "pipeline.vertex.compile:compile_pipeline",
    "configure_devices": "trainer_module.parallel.topology:configure_devices",
    "create_pipeline": "pipeline.project:create_pipeline",
    "eval_config": "pipeline.evaluation:eval_config",
    "example_gen_of": "pipeline.data:example_gen_of",
    "load_settings": "pipeline.settings.tree:load",
    "model_arguments": "pipeline.checks.model_arguments:find",
    "preprocessing_of": "pipeline.data:preprocessing",
    "tfx_engine": "pipeline.tfx_command.engine_option:engine",
}
"""Public name -> module, and the name there."""


def __getattr__(name: str) -> typing.Any:
    """Imports a public name when it is used for the first time (PEP 562)."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = pkgutil.resolve_name(f"stagecraft.{_PLACES[name]}")
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
