"""Connects to the devices of a topology, and makes the engine that trains on them."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from stagecraft.trainer_module.engines.engine import Engine
from stagecraft.trainer_module.engines.strategy_engine import BuildModel
from stagecraft.trainer_module.parallel import cluster, topology as topologies
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.processes import events, loopback, rendezvous
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings


def connect(topology: Topology, parallel: ParallelSettings) -> tf.distribute.Strategy | None:
    """The ``tf.distribute`` strategy over the devices; None: the strategy uses none.

    Call it before anything else uses TensorFlow: collectives and remote devices have to be set
    up first. Waits for the other processes of a cluster. If all of them are on this machine,
    TensorFlow's server accepts connections of this machine alone from then on.
    """
    connected = topology.found.connect(topology, parallel)
    members = cluster.training(parallel)
    if members is not None:
        loopback.restrict(members.address)
    return connected


class Joined(NamedTuple):
    """This process, as a part of a topology."""

    devices: Topology
    chief: bool
    """Whether it decides for all processes."""
    connected: tf.distribute.Strategy | None


def join(parallel: ParallelSettings) -> Joined:
    """Reserves the devices and meets the other processes; a process that only serves stays here.

    Raises:
        UserError: the machine lacks the devices, or ``TF_CONFIG`` does not fit.
        PeersMissingError: a peer does not listen in time.
    """
    devices = topologies.resolve(parallel)
    members = cluster.training(parallel)
    own = parallel.found
    if members is not None and members.role in own.serves:
        events.emit("started")
        own.serve()
    with rendezvous.wait_for_peers(members, parallel.start_timeout_seconds):
        connected = connect(devices, parallel)
    events.emit("started")
    return Joined(devices, members is None or members.is_chief, connected)


def make_engine(
    connected: tf.distribute.Strategy | None,
    topology: Topology,
    settings: TrainingSettings,
    total_steps: int,
    build_model: BuildModel,
) -> Engine:
    """The engine for ``topology``, with a new model: see :meth:`Strategy.make_engine`."""
    engine: Engine = topology.found.make_engine(
        connected, topology, settings, total_steps, build_model
    )
    return engine
