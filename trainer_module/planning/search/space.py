"""The topologies that a search compares, under the rules of :class:`ParallelSettings`.

A *division* divides the devices: workers, replicas, stages and shards. Each division has *groups*
of virtual stages, microbatches, schedule and recomputation, which decide the time of a step. Each
group has *levers*, accumulation steps and ZeRO, which take memory but no time in this prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.planning.cost_model import CostModel, Degrees
from stagecraft.trainer_module.settings import ParallelSettings

ENOUGH_MICROBATCHES = 4
"""Per stage: more hardly shrink the bubble (GPipe, section 2.3), but split the work further."""

ENOUGH_VIRTUAL_STAGES = 8
"""Per device: more hardly shrink the bubble, but copy more and lengthen the graph."""


class Division(NamedTuple):
    """How many devices share what."""

    workers: int
    replicas: int
    stages: int
    shards: int


class Space:
    """All topologies of some devices for a model and a global batch size.

    Every number of stages and replicas, on all devices or fewer; shards divide the devices of a
    host evenly. Degrees that the settings change from their defaults stay as they are.
    """

    def __init__(
        self,
        work: CostModel,
        *,
        hosts: int,
        devices: int,
        fixed: Mapping[str, Any] | None = None,
    ):
        """Describes the space.

        Args:
            work: pieces and settings.
            hosts: the most workers; each is one process on a host of its own.
            devices: of each host.
            fixed: values of degrees, by name; None: those that the settings change from their
                defaults.

        Raises:
            SettingError: the strategy has one topology, or the settings need more devices.
        """
        self.hosts, self.devices = hosts, devices
        self._parallel = parallel = work.settings.parallel
        self._pieces = len(work.pieces)
        self._batch_size = work.settings.train.batch_size
        self._splits = any(each.split_parameters or each.split_flops for each in work.pieces)
        optimizer = registries.OPTIMIZERS.get(work.settings.train.optimizer)
        self._divides_slots = optimizer.elementwise
        if fixed is None:
            fixed = _changed(work.degrees)
            if parallel.cut_names:
                fixed |= {"stages": parallel.stages, "virtual_stages": parallel.virtual_stages}
        self._fixed = fixed
        if parallel.found.alternative(1, 1) is None:
            raise SettingError(
                "parallel.strategy",
                parallel.strategy,
                "has no other topologies to search",
                "parallel.strategy: auto",
            )
        self._check_devices(Degrees(**fixed))

    def _check_devices(self, degrees: Degrees) -> None:
        """Refuses degrees that need more devices than there are."""
        if degrees.workers > self.hosts:
            problem = f"needs as many hosts, but the search has {self.hosts}"
            raise SettingError(
                "parallel.workers", degrees.workers, problem, f"parallel.workers: {self.hosts}"
            )
        if degrees.devices <= self.devices:
            return
        used = {name: getattr(degrees, name) for name in ("replicas", "stages", "shards")}
        name = max(used, key=lambda each: used[each])
        product = " × ".join(f"parallel.{each}: {used[each]}" for each in used if used[each] > 1)
        raise SettingError(
            f"parallel.{name}",
            used[name],
            f"is too many: {product} need {degrees.devices} devices, but each host has "
            f"{self.devices}",
            f"parallel.{name}: {max(1, self.devices * used[name] // degrees.devices)}",
        )

    def divisions(self) -> Iterator[Division]:
        """All divisions, in order."""
        shards = divisors(self.devices) if self._splits else [1]
        for workers in self._values("workers", range(1, self.hosts + 1)):
            if self._batch_size % workers:
                continue
            for replicas in self._values("replicas", divisors(self._batch_size // workers)):
                if self._batch_size // workers % replicas:
                    continue
                for shard in self._values("shards", shards):
                    most = min(self.devices // (replicas * shard), self._pieces)
                    for stages in self._values("stages", range(1, most + 1)):
                        if stages <= most:
                            yield Division(workers, replicas, stages, shard)

    def groups(self, division: Division) -> list[Degrees]:
        """The groups of a division: those with more microbatches first, without levers."""
        workers, replicas, stages, shards = division
        examples = self._batch_size // (workers * replicas)
        if stages > 1:
            most = ENOUGH_MICROBATCHES * stages
            wanted = [each for each in divisors(examples) if each <= most]
            schedules: Sequence[str] = schedule.SCHEDULES[::-1]
            virtual = range(1, ENOUGH_VIRTUAL_STAGES + 1)
        else:  # accumulation steps do the same
            wanted, schedules, virtual = [1], ["1f1b"], range(1, 2)
        return [
            Degrees(
                workers=workers,
                replicas=replicas,
                stages=stages,
                virtual_stages=parts,
                shards=shards,
                microbatches=microbatches,
                microbatch_schedule=order,
                remat=remat,
            )
            for remat in self._values("remat", [False, True])
            for microbatches in self._values("microbatches", wanted[::-1])
            if examples % microbatches == 0
            for parts in self._values("virtual_stages", virtual)
            for order in self._values("microbatch_schedule", schedules)
            if self._interleaves(stages, parts, microbatches, order)
        ]

    def _interleaves(self, stages: int, virtual: int, microbatches: int, order: str) -> bool:
        if stages * virtual > self._pieces:
            return False
        ordered = stages > 1 and order == "1f1b" and microbatches % stages == 0
        return virtual == 1 or ordered

    def levers(self, group: Degrees) -> list[Degrees]:
        """A group with each of its levers; those that take the most memory first.

        Empty: no strategy has such a topology.
        """
        examples = self._batch_size // (group.workers * group.replicas * group.microbatches)
        may_divide = group.replicas > 1 and group.workers == 1 and self._divides_slots
        return [
            degrees._replace(strategy=name)
            for accumulate in self._values("accumulate", divisors(examples))
            if examples % accumulate == 0
            for zero in self._values("zero", [0, 1])
            if may_divide or not zero
            for degrees in [group._replace(accumulate=accumulate, zero=zero)]
            if (name := self._strategy(degrees)) is not None
        ]

    def strategies(self, replicas: int, stages: int) -> list[str]:
        """Strategies for a division, the simplest first; the last one cuts models."""
        found = self._parallel.found
        names = found.alternative(replicas, stages), found.alternative(replicas, 2)
        return list(dict.fromkeys(filter(None, names)))

    def _strategy(self, degrees: Degrees) -> str | None:
        """The simplest strategy; None: none has such a topology."""
        parallel = self._parallel
        in_stages = (
            max(degrees.stages, degrees.shards, degrees.microbatches) > 1
            or degrees.zero
            or parallel.memory_mb
            or parallel.timeline_step
        )
        for name in self.strategies(degrees.replicas, degrees.stages):
            found = strategy.find(name)
            if (
                (found.cuts_model or not in_stages)
                and (found.several_processes or degrees.workers == 1)
                and parallel.all_reduce in found.all_reduces
            ):
                return name
        return None

    def _values(self, name: str, free: Sequence[int] | Sequence[str] | range) -> Sequence:
        """The value that the settings fix; otherwise the free ones."""
        return [self._fixed[name]] if name in self._fixed else free


def _changed(degrees: Degrees) -> dict[str, Any]:
    """Degrees besides the strategy that differ from the defaults of ``parallel:``."""
    return {
        name: value
        for name, value in degrees._asdict().items()
        if name != "strategy" and value != ParallelSettings.model_fields[name].default
    }


def divisors(number: int) -> list[int]:
    """All divisors, in order."""
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})
