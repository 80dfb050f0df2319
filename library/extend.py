"""Base classes with which other packages extend Stagecraft, and the types of their arguments.

    from stagecraft.extend import Optimizer

The guide is docs/how-to/extend.md. Each name is imported on first use, so that a module that
registers something imports no TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagecraft.common import lazy

if TYPE_CHECKING:
    from stagecraft.common.errors import SettingError as SettingError, UserError as UserError
    from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob as ClusterJob
    from stagecraft.components.kubernetes.jobs.kinds.job import IndexedJob as IndexedJob
    from stagecraft.components.report.pages.sections import Content as Content
    from stagecraft.pipeline.beam.runner import Runner as Runner
    from stagecraft.trainer_module.data.augmentation import Augmentation as Augmentation
    from stagecraft.trainer_module.data.batch import Batch as Batch
    from stagecraft.trainer_module.data.tasks import constant as constant
    from stagecraft.trainer_module.data.tasks.metric import Mean as Mean, Metric as Metric
    from stagecraft.trainer_module.data.tasks.task import Spec as Spec, Task as Task
    from stagecraft.trainer_module.engines.strategy_engine import StrategyEngine as StrategyEngine
    from stagecraft.trainer_module.models.family import ModelFamily as ModelFamily
    from stagecraft.trainer_module.models.layers.own_layers import Whitening as Whitening
    from stagecraft.trainer_module.optimization.loss import Loss as Loss
    from stagecraft.trainer_module.optimization.optimizer import Optimizer as Optimizer
    from stagecraft.trainer_module.optimization.schedule import (
        RateSchedule as RateSchedule,
        Schedule as Schedule,
    )
    from stagecraft.trainer_module.parallel.strategies.mirrored import Mirrored as Mirrored
    from stagecraft.trainer_module.parallel.strategy import (
        ParityCase as ParityCase,
        Strategy as Strategy,
        Traffic as Traffic,
    )
    from stagecraft.trainer_module.settings import (
        ParallelSettings as ParallelSettings,
        TrainSettings as TrainSettings,
    )
    from stagecraft.trainer_module.tensor_parallel.rule import ShardRule as ShardRule
    from stagecraft.trainer_module.tensor_parallel.split import (
        Split as Split,
        Way as Way,
        even as even,
    )

__all__, __getattr__, __dir__ = lazy.exports(__name__)
