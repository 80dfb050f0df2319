"""Predicts a training step of a paper with the planner's cost model, and the batch that fits."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from stagecraft.trainer_module.models.costs import StageCost
from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.planning import collective_costs, device_times
from stagecraft.trainer_module.planning.accelerators import Accelerator
from stagecraft.trainer_module.planning.collective_costs import Links

BACKWARD = 2.0
"""Ratio of backward to forward operations."""
WIDTH = 4
"""Bytes of a weight, and of each slot."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a training, as a paper describes it."""

    costs: Sequence[StageCost]
    """Of the layers, for one example."""
    starts: Sequence[int]
    """First layers of all parts of the model but the first."""
    accelerator: Accelerator
    links: Links
    precision: str
    batch: float
    """Examples of all replicas."""
    microbatches: int = 1
    stages: int = 1
    virtual: int = 1
    schedule: str = "gpipe"
    recomputed: float = 0.0
    """Share of the microbatches whose activations are computed again."""
    early: bool = False
    """Whether this begins before the gradient arrives."""
    shards: int = 1
    replicas: int = 1
    host_devices: int = 8
    """Devices of a host."""
    gradient_bytes: int = 4
    """Bytes of a gradient of a weight."""
    overlap: bool = False
    """Whether the all-reduce overlaps with the last backward pass."""
    slots: int = 1
    """Variables that the optimizer keeps for each weight."""
    updates: bool = True
    """Whether the update of the weights takes time."""

    @property
    def examples(self) -> float:
        """Examples of a microbatch."""
        return self.batch / (self.replicas * self.microbatches)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The first layer of each part of the model, and the layer after it."""
        return list(itertools.pairwise([0, *self.starts, len(self.costs)]))

    def seconds(self) -> float:
        """Seconds of the step."""
        bounds = self.bounds
        layers = [self._layer(cost) for cost in self.costs]
        forward = [sum(layer[0] for layer in layers[a:b]) for a, b in bounds]
        backward = [sum(layer[1] for layer in layers[a:b]) for a, b in bounds]
        again = [self.recomputed * sum(layer[2] for layer in layers[a:b]) for a, b in bounds]
        if not self.early:
            backward = [sum(both) for both in zip(backward, again, strict=True)]
        slots = schedule.timetable(
            schedule.passes(self.schedule, self.microbatches, self.stages, self.virtual),
            forward,
            backward,
            [self._copy(self.costs[end - 1]) for _, end in bounds[:-1]],
            recompute=again if self.early else None,
        )
        hidden = sum(backward[:: self.stages]) if self.overlap else 0.0
        all_reduce = max(self._all_reduce(bounds[:: self.stages]) - hidden, 0.0)
        return schedule.span(slots) + all_reduce + self.updates * self._update(bounds)

    def _layer(self, cost: StageCost) -> tuple[float, float, float]:
        """Seconds of a microbatch: forward, backward, and forward again.

        The inputs of the first and the outputs of the last layer are kept in any case.
        """
        part = device_times.divide(cost, self.shards)
        times = device_times.times(part, self.accelerator, self.precision, BACKWARD, self.examples)
        exchanged = collective_costs.shards_seconds(
            self.examples * cost.shard_bytes, self.shards, self.links.inside, ring=True
        )
        forward = self.examples * times.forward + exchanged
        backward = self.examples * times.backward + exchanged
        return forward, backward, 0.0 if cost.kind in ("embedding", "logits") else forward

    def _copy(self, cost: StageCost) -> float:
        """Seconds to send a microbatch to the next stage.

        If the shards of a stage fill a host, each sends its part to another host, where all gather
        the parts (Narayanan et al. 2021, section 4.1).
        """
        size = self.examples * cost.output_bytes
        if self.shards < self.host_devices:
            return collective_costs.copy_seconds(size, self.links.inside)
        part = collective_costs.copy_seconds(
            size / self.shards, self.links.between(1 / self.shards)
        )
        return part + collective_costs.all_gather_seconds(size, self.shards, self.links.inside)

    def _update(self, bounds: Sequence[tuple[int, int]]) -> float:
        """Seconds in which the device with the most weights updates them."""
        most = max(self._trainable(bounds[device :: self.stages]) for device in range(self.stages))
        moved = device_times.moved_bytes(most, self.slots, gradient_width=self.gradient_bytes)
        return moved / device_times.bytes_per_second(self.accelerator)

    def _trainable(self, bounds: Sequence[tuple[int, int]]) -> int:
        """Weights on each shard of a device with these parts of the model."""
        costs = [cost for begin, end in bounds for cost in self.costs[begin:end]]
        return sum(device_times.divide(cost, self.shards).trainable for cost in costs)

    def _all_reduce(self, bounds: Sequence[tuple[int, int]]) -> float:
        """Seconds in which the replicas of the first stage, the largest, sum their gradients."""
        if self.replicas == 1:
            return 0.0
        inside = min(max(self.host_devices // (self.shards * self.stages), 1), self.replicas)
        return collective_costs.hierarchical_all_reduce_seconds(
            self.gradient_bytes * self._trainable(bounds),
            inside,
            self.replicas // inside,
            self.links,
            groups=min(self.shards, self.host_devices),
        )


def adjusted(step: Step, share: float = 1.0) -> Step:
    """The step with the largest microbatches that fit memory, a power of two examples each.

    For a publication that adjusted the batch to fit memory. At least one example for each
    microbatch, which the publication must have fitted somehow; at most the batch of ``step`` for
    all of them.

    Args:
        share: of the activations' bytes that takes memory.
    """
    examples, memory = 1, 1e9 * step.accelerator.memory_gb
    while (
        2 * examples * step.microbatches <= step.batch
        and device_bytes(step, 2 * examples, share) <= memory
    ):
        examples *= 2
    return dataclasses.replace(step, batch=examples * step.microbatches)


def device_bytes(step: Step, examples: float, share: float = 1.0) -> float:
    """Bytes on the device that needs the most, if it recomputes all activations.

    Weights and slots; the inputs of each part of the model for all microbatches, from which it
    recomputes; and all activations of a part for one microbatch (Huang et al. 2019, section 2.3:
    ``O(N + L / K x N / M)``).

    Args:
        examples: of a microbatch.
        share: as in :func:`adjusted`.
    """
    found = []
    for begin, end in step.bounds:
        costs = step.costs[begin:end]
        weights = WIDTH * (1 + step.slots) * sum(cost.parameters for cost in costs)
        kept = step.microbatches * costs[0].input_bytes
        activations = share * sum(cost.activation_bytes for cost in costs)
        found.append((weights + examples * kept, examples * activations))
    devices = [found[device :: step.stages] for device in range(step.stages)]
    return max(sum(kept for kept, _ in parts) + max(most for _, most in parts) for parts in devices)
