"""Connects to the devices of a topology, and makes the engine that trains on them."""

from __future__ import annotations

import tensorflow as tf

from stagecraft.trainer_module.engines.strategy import BuildModel
from stagecraft.trainer_module.engines.training import Engine
from stagecraft.trainer_module.parallel import cluster, strategy
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.processes import loopback
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings


def connect(topology: Topology, parallel: ParallelSettings) -> tf.distribute.Strategy | None:
    """The ``tf.distribute`` strategy over the devices; None: the strategy uses none.

    Call it before anything else uses TensorFlow: collectives and remote devices have to be set
    up first. Waits for the other processes of a cluster. If all of them are on this machine,
    TensorFlow's server accepts connections of this machine alone from then on.
    """
    connected = strategy.find(topology.strategy).connect(topology, parallel)
    members = cluster.training(parallel)
    if members is not None:
        loopback.restrict(members.address)
    return connected


def make_engine(
    connected: tf.distribute.Strategy | None,
    topology: Topology,
    settings: TrainingSettings,
    total_steps: int,
    build_model: BuildModel,
) -> Engine:
    """The engine for ``topology``, with a new model: see :meth:`Strategy.make_engine`."""
    found = strategy.find(topology.strategy)
    engine: Engine = found.make_engine(connected, topology, settings, total_steps, build_model)
    return engine
