"""Settings, the pipeline, its runners and the command line.

The names below are for a user's own ``pipeline.py`` and runners, such as those that ``stagecraft
init`` writes. Each is imported on first use.
"""

from __future__ import annotations

import typing

from stagecraft.common import lazy

if typing.TYPE_CHECKING:
    from stagecraft.contrib.tfx_command import engine as tfx_engine
    from stagecraft.contrib.vertex.runner import (
        VertexRunner as VertexRunner,
        compile_pipeline as compile_for_vertex,
    )
    from stagecraft.pipeline.beam import beam_args as beam_args
    from stagecraft.pipeline.checks.preflight import (
        check as check_model,
        model_arguments as model_arguments,
    )
    from stagecraft.pipeline.data import (
        eval_config as eval_config,
        example_gen as example_gen_of,
        preprocessing as preprocessing_of,
    )
    from stagecraft.pipeline.kubeflow.compile import (
        check as check_kubeflow,
        compile_pipeline as compile_for_kubeflow,
    )
    from stagecraft.pipeline.kubeflow.runner import KubeflowRunner as KubeflowRunner
    from stagecraft.pipeline.local.runners import (
        BeamRunner as BeamRunner,
        LocalRunner as LocalRunner,
    )
    from stagecraft.pipeline.project import create_pipeline as create_pipeline
    from stagecraft.pipeline.settings import EvaluateSettings as EvaluateSettings
    from stagecraft.pipeline.settings.kubeflow import KubeflowSettings as KubeflowSettings
    from stagecraft.pipeline.settings.tree import (
        PipelineSettings as PipelineSettings,
        load as load_settings,
    )
    from stagecraft.schemas import features as features
    from stagecraft.trainer_module.parallel.topology import configure_devices as configure_devices
    from stagecraft.trainer_module.settings import (
        TrainingSettings as TrainingSettings,
        TrainSettings as TrainSettings,
    )

__all__, __getattr__, __dir__ = lazy.exports(__name__)
