"""Which engine trains on a topology."""

from __future__ import annotations

import tensorflow as tf

from stagecraft.trainer_module.engines.base import Engine
from stagecraft.trainer_module.engines.grid import GridEngine
from stagecraft.trainer_module.engines.parameter_server import ParameterServerEngine
from stagecraft.trainer_module.engines.strategy import BuildModel, StrategyEngine
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.settings import TrainingSettings


def make_engine(
    strategy: tf.distribute.Strategy | None,
    topology: Topology,
    settings: TrainingSettings,
    total_steps: int,
    build_model: BuildModel,
) -> Engine:
    """The engine for ``topology``, with a new model on its devices.

    Args:
        strategy: what ``strategies.connect`` gave.
        topology: the devices.
        settings: of the training.
        total_steps: the schedule's length.
        build_model: builds the model in the scope that it is given.

    Raises:
        UserError: the model does not fit the topology.
    """
    if strategy is None:
        return GridEngine(topology, settings, total_steps, build_model)
    engine = ParameterServerEngine if topology.strategy == "parameter_server" else StrategyEngine
    return engine(strategy, topology, settings, total_steps, build_model)
