"""The base of strategies: the one object that the rest of the product asks. Imports no TensorFlow.

A strategy is a file in ``strategies/``, or an entry point ``stagecraft.strategies`` of another
package. The file imports TensorFlow and engines inside functions only, because settings are
checked, and ``--help`` is shown, without them.
"""

from __future__ import annotations

import abc
import dataclasses
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stagecraft.common.registry import UnknownNameError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.parallel import rules, topology as topologies
from stagecraft.trainer_module.parallel.cluster import Cluster
from stagecraft.trainer_module.parallel.rules import Capabilities
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.topology import Topology


class Traffic(NamedTuple):
    """Bytes that a device sends in a step, in one direction, after its last backward pass."""

    devices: float
    """Bytes over the links between devices of a host."""
    hosts: float
    """Bytes over the host's network."""


@dataclasses.dataclass(frozen=True)
class ParityCase:
    """A topology that ``stagecraft parity`` compares with one device."""

    description: str
    parallel: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings besides the strategy."""
    train: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Strategy(Capabilities):
    """Base of all strategies: replicas in one process, which compute what one device would."""

    serves: frozenset[str] = frozenset()
    """Jobs, such as ``ps``, whose processes run :meth:`serve` and never end by themselves."""

    restarts_alone: frozenset[str] = frozenset()
    """Jobs whose lost process is started again while the others go on."""

    is_reference = False
    """Whether parity compares the other strategies with this one."""

    parity_cases: Mapping[str, ParityCase] = {}
    """Cases by their names in ``stagecraft parity --topologies``."""

    engine = "stagecraft.trainer_module.engines.strategy_engine:StrategyEngine"
    """Class of its engine: ``package.module:Class``."""

    engine_functions: tuple[str, ...] = ()
    """Functions that the engine gets, such as the one that cuts its model, in the same form."""

    traffic_name = "all-reduce"
    """Name of the traffic in ``stagecraft plan``."""

    traffic_description = "the all-reduce of gradients"
    """The name as a limit of a step."""

    fidelity = "Each step computes the same as one device."
    """Sentence of a report."""

    @property
    def code(self) -> tuple[str, ...]:
        """Modules whose code a training runs."""
        return (*super().code, self.engine.partition(":")[0])

    def check(self, parallel: ParallelSettings) -> None:
        """Refuses settings that do not go together.

        Raises:
            SettingError: names the field, its value, and one that works.
        """
        rules.check(parallel, self)

    def processes(self, parallel: ParallelSettings) -> dict[str, int]:
        """Processes of each job besides an evaluator, the chief's first; empty: there is one."""
        return {"worker": parallel.workers} if parallel.workers > 1 else {}

    def cluster(self, parallel: ParallelSettings) -> Cluster | None:
        """This process's cluster, as ``TF_CONFIG`` describes it; None: it trains by itself.

        Raises:
            UserError: ``TF_CONFIG`` is wrong, or does not fit the settings.
        """
        return None

    def serve(self) -> None:
        """Runs a process of one of :attr:`serves`; never returns."""

    def choose(self, parallel: ParallelSettings) -> Sequence[str]:
        """Reserves and returns this process's devices: the stages of each replica in order.

        Raises:
            UserError: the machine lacks the devices.
        """
        names = topologies.choose_devices(parallel)
        return topologies.show_only(names) if self.takes_all_gpus else names

    def conflicts(self, topology: Topology, earlier: Topology) -> bool:
        """Whether a topology cannot follow another one in the same process."""
        return False

    @abc.abstractmethod
    def connect(self, topology: Topology, parallel: ParallelSettings) -> Any:
        """The ``tf.distribute`` strategy over the devices; None: it uses none.

        Nothing has used TensorFlow before. Waits for the other processes of a cluster.
        """

    def make_engine(
        self,
        connected: Any,
        topology: Topology,
        settings: Any,
        total_steps: int,
        build_model: Callable[..., Any],
    ) -> Any:
        """The engine, with a new model on the devices.

        Args:
            connected: the result of :meth:`connect`.
            topology: the devices.
            settings: ``TrainingSettings``.
            total_steps: length of the learning-rate schedule.
            build_model: builds the model in the scope that it is called with.
        """
        engine, *functions = map(pkgutil.resolve_name, (self.engine, *self.engine_functions))
        first = () if connected is None else (connected,)
        return engine(*first, topology, settings, total_steps, build_model, *functions)

    def traffic(
        self, parallel: ParallelSettings, gradients: Sequence[float], weights: float
    ) -> Traffic:
        """Bytes that a step sends: here, a ring around the replicas of each stage.

        Each of N devices sends ``2 (N - 1) / N`` of the summed bytes (Patarasuk and Yuan 2009,
        "Bandwidth optimal all-reduce algorithms for clusters of workstations", section 2). Inside a
        host each stage's ring has links to itself, so that the largest counts; between hosts all
        of them share the network.

        Args:
            parallel: replicas, workers, servers.
            gradients: bytes of each stage's gradients.
            weights: bytes of all variables.
        """
        count = parallel.workers * parallel.replicas
        ring = 2 * (count - 1) / count
        return Traffic(
            ring * max(gradients) if parallel.replicas > 1 else 0.0,
            ring * sum(gradients) if parallel.workers > 1 else 0.0,
        )

    def crosses_hosts(self, parallel: ParallelSettings) -> bool:
        """Whether a step sends anything between hosts."""
        return parallel.workers > 1

    def alternative(self, replicas: int, stages: int) -> str | None:
        """Strategy for another division of the same devices; None: a plan suggests none."""
        return None

    def label(self, replicas: int, stages: int, shards: int = 1) -> str:
        """The topology in a word or two."""
        return self.name.replace("_", " ")


def find(name: str) -> Strategy:
    """The strategy of a name; raises an UnknownNameError if there is none."""
    found: Strategy = registries.STRATEGIES.get(name)
    return found


def label(name: str, replicas: int, stages: int, shards: int = 1) -> str:
    """A topology in a word or two; the strategy's package need not be installed here."""
    try:
        return find(name).label(replicas, stages, shards)
    except UnknownNameError:
        return name.replace("_", " ")
