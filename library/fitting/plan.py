"""``plan``: estimates what a topology costs, without training."""

from __future__ import annotations

import contextlib
from typing import Any

import keras

from stagecraft import process_state
from stagecraft.common.errors import SettingError
from stagecraft.fitting.work import Model, Optimizer, settings
from stagecraft.parallel_model import session
from stagecraft.trainer_module.models import blank, model_graph
from stagecraft.trainer_module.planning.accelerators import NETWORK_GBIT
from stagecraft.trainer_module.planning.plan import Plan
from stagecraft.trainer_module.planning.target import Target
from stagecraft.trainer_module.settings import ParallelSettings


def plan(
    model: Model,
    parallel: ParallelSettings,
    devices: str | None = None,
    *,
    batch_size: int = 32,
    optimizer: Optimizer = "adam",
    input_shape: Any = None,
    network_gbit: float = NETWORK_GBIT,
) -> Plan:
    """Cuts a model into the stages of a topology, and estimates a step of its training.

    Args:
        model: a Keras model, or a function that builds one.
        parallel: the topology. ``costs="measured"`` times the layers on this machine.
        devices: published peak rates to plan with, such as ``4xA100-40GB`` for each worker; the
            machine need not have them. None: the devices of this machine, in operations.
        batch_size: examples of a step, over all devices.
        optimizer: its slots take memory.
        input_shape: of one example, if the model is not built, or leaves sizes open, such as the
            length of texts: ``(1024,)``; or shapes by the names of the inputs.
        network_gbit: Gbit/s between the hosts of workers, in one direction.

    Raises:
        UserError: the model cannot be cut so, the devices are too few, or a stage does not fit into
            the memory of its device.
    """
    session.check_type(parallel)
    target = Target(None if devices is None else str(devices), "devices=")
    with process_state.restored():
        built = _built(model, input_shape, parallel.costs)
        return target.plan(
            lambda: built,
            settings(parallel, batch_size, optimizer),
            network_gbit=network_gbit,
        )


def _built(model: Any, input_shape: Any, costs: str) -> Any:
    """The model, built, with inputs of known sizes."""
    built = None if session.builds(model) else model
    if built is None and costs != "measured":
        # Weights without values take no memory; not every function can do without them.
        with contextlib.suppress(Exception), blank.scope():
            built = model()
    if built is None:
        built = model()
    if not isinstance(built, keras.Model):
        raise session.refused_model(built)
    if not built.built and input_shape is not None:
        built.build((None, *input_shape))
    if not built.built:
        use = "input_shape=(32, 32, 3)"
        raise SettingError("input_shape", None, "is needed: the model does not say it", use)
    if model_graph.are_open(model_graph.of(built)):
        model_graph.note_sizes(built, input_shape)
    return built
