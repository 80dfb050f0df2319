"""``plan``: estimates what a topology costs, without training."""

from __future__ import annotations

import contextlib
import dataclasses
import html
from typing import Any

import keras

from stagecraft import process_state
from stagecraft.common.errors import SettingError, UserError
from stagecraft.fitting.work import settings
from stagecraft.parallel_model import session
from stagecraft.trainer_module.models import model_graph
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.parallel.rules import capabilities
from stagecraft.trainer_module.partition import blank
from stagecraft.trainer_module.planning import accelerators, plan_text, planner
from stagecraft.trainer_module.planning.plan import Plan as Costs, StagePlan
from stagecraft.trainer_module.planning.search import automatic
from stagecraft.trainer_module.settings import ParallelSettings


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """A topology and its predicted costs; a table in a terminal and in a notebook."""

    costs: Costs
    """All numbers."""

    @property
    def cuts(self) -> list[str]:
        """The last layer of each stage except the final one, as ``Parallel(cuts=…)`` has them."""
        return self.costs.cuts

    @property
    def stages(self) -> list[StagePlan]:
        """Layers, parameters and costs of each stage."""
        return self.costs.stages

    @property
    def seconds(self) -> float | None:
        """Seconds of a step; None if the plan counts operations."""
        return self.costs.step_seconds

    @property
    def memory_bytes(self) -> int:
        """Bytes on the device that needs the most."""
        return max(stage.memory_bytes for stage in self.costs.stages)

    @property
    def speedup(self) -> float:
        """Speed-up over one device."""
        return self.costs.speedup

    @property
    def bubble(self) -> float:
        """Share of the time in which the devices of equal stages wait for microbatches."""
        return self.costs.bubble

    def __str__(self) -> str:
        return plan_text.plan_text(self.costs)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f"<pre>{html.escape(str(self))}</pre>"


def plan(
    model: Any,
    parallel: ParallelSettings,
    devices: str | None = None,
    *,
    batch_size: int = 32,
    optimizer: Any = "adam",
    input_shape: Any = None,
    network_gbit: float = accelerators.NETWORK_GBIT,
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
    with process_state.restored():
        built = _built(model, input_shape, parallel.costs)
        wanted = settings(parallel, batch_size, optimizer)
        accelerator = None
        if devices is not None:
            count, accelerator = accelerators.parse(str(devices), "devices")
            available = [f"{accelerator.name}:{index}" for index in range(count)]
            if capabilities(parallel.strategy).resolves:
                wanted = automatic.search(
                    built, wanted, hosts=1, devices=count, accelerator=accelerator
                ).settings
            chosen = _first(available, wanted.parallel)
        else:
            wanted = automatic.resolved(wanted, lambda: built).settings
            if capabilities(wanted.parallel.strategy).remote_devices:
                chosen = list(topology.resolve(wanted.parallel).devices)
            else:
                topology.configure_devices(wanted.parallel)
                chosen = list(topology.choose(wanted.parallel))
            available = topology.available(wanted.parallel)
        costs = planner.make_plan(
            built,
            wanted,
            chosen,
            available=len(available),
            accelerator=accelerator,
            network_gbit=network_gbit,
        )
    return Plan(costs)


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


def _first(available: list[str], parallel: ParallelSettings) -> list[str]:
    """The first devices, as many as one worker needs."""
    needed = parallel.devices_per_worker
    if needed <= len(available):
        return available[:needed]
    name = available[0].partition(":")[0]
    raise UserError(
        f"devices: {len(available)}x{name} are fewer than the {needed} devices that each worker "
        f"needs; use devices={needed}x{name}",
        setting="devices",
        value=len(available),
        suggestion=f"devices={needed}x{name}",
    )
