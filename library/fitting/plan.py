"""``plan``: estimates what a topology costs, without training."""

from __future__ import annotations

import dataclasses
import html
from typing import Any

import tensorflow as tf

from stagecraft import messages, process_state
from stagecraft.fitting import job
from stagecraft.fitting.task import GivenTask
from stagecraft.objects import model as given_model
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.parallel.capabilities import capabilities
from stagecraft.trainer_module.planning import accelerators, plan_text, planner
from stagecraft.trainer_module.planning.plan import Plan as Costs
from stagecraft.trainer_module.planning.plan import StagePlan
from stagecraft.trainer_module.planning.search import of_model
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
        input_shape: of one example, if the model is not built.
        network_gbit: Gbit/s between the hosts of workers, in one direction.

    Raises:
        UserError: the model cannot be cut so, the devices are too few, or a stage does not fit into
            the memory of its device.
    """
    parallel = job.topology_of(parallel)
    with process_state.restored(), messages.in_own_words(of_arguments=True):
        specs = given_model.specs(model, input_shape)
        made = job.make(
            model,
            GivenTask(specs, None, loss=_no_loss),
            optimizer=optimizer,
            parallel=parallel,
            batch_size=batch_size,
            steps=1,
            seed=0,
            resolves=devices is None,
        )
        try:
            parallel, accelerator = made.settings.parallel, None
            if devices is not None:
                given = devices if isinstance(devices, str) else str(devices)
                count, accelerator = accelerators.parse(given, "devices")
                available = [f"{accelerator.name}:{index}" for index in range(count)]
                if capabilities(parallel.strategy).resolves:
                    found = of_model.search(
                        made.build_model(tf.device("CPU:0")),
                        made.settings,
                        hosts=1,
                        devices=count,
                        accelerator=accelerator,
                    )
                    made = dataclasses.replace(made, settings=found.settings)
                    parallel = made.settings.parallel
                chosen = _first(available, parallel)
            else:
                if capabilities(parallel.strategy).remote_devices:
                    chosen = list(topology.resolve(parallel).devices)
                else:
                    topology.configure_devices(parallel)
                    chosen = list(topology.choose(parallel))
                available = topology.available(parallel)
            costs = planner.make_plan(
                made.build_model(tf.device("CPU:0")),
                made.settings,
                chosen,
                available=len(available),
                accelerator=accelerator,
                network_gbit=network_gbit,
            )
        finally:
            made.release()
    return Plan(costs)


def _no_loss(targets: Any, outputs: Any) -> Any:
    """0 for each example: a plan needs no loss."""
    first = tf.nest.flatten(outputs)[0]
    return tf.zeros([tf.shape(first)[0]], tf.float32)


def _first(available: list[str], parallel: ParallelSettings) -> list[str]:
    """As many devices as one worker needs."""
    needed = parallel.replicas * parallel.stages
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
