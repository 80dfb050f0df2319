"""Reads the papers' tables beside this file, and predicts each row."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from papers import layers, networks
from papers.steps import Step, adjusted
from papers.transformers import Transformer

from stagecraft.trainer_module.models.costs import StageCost
from stagecraft.trainer_module.pipeline_parallel.partition import balance
from stagecraft.trainer_module.planning import collective_costs
from stagecraft.trainer_module.planning.accelerators import ACCELERATORS, Accelerator

FOLDER = pathlib.Path(__file__).parent

TPUS = {
    each.name: each
    for each in (
        # One of the two cores of a chip; Jouppi et al. 2020, "A domain-specific supercomputer for
        # training deep neural networks". float32 is bfloat16 there, and there is no float64.
        Accelerator("TPUv2-8GB", 8, 350, 62, 22.5, 0, 22.5, 22.5, tf32=True, efficiency=0.64),
        Accelerator("TPUv3-16GB", 16, 450, 82, 61.5, 0, 61.5, 61.5, tf32=True, efficiency=0.64),
    )
}
"""Of these, the papers give normalized figures alone: the efficiency hardly matters."""

NETWORKS: Mapping[str, Callable[..., list[StageCost]]] = {
    "resnet": networks.resnet,
    "unet": networks.unet,
    "amoebanet_d": networks.amoebanet_d,
    "transformer": lambda **sizes: Transformer(**sizes).costs(),
}

RECOMPUTED: Mapping[str, Callable[[int], float]] = {
    "never": lambda microbatches: 0.0,
    "except_last": lambda microbatches: (microbatches - 1) / microbatches,
    "always": lambda microbatches: 1.0,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a paper's table, and its training step."""

    row: str
    published: float
    unit: str
    """``examples/s``, ``normalized`` or ``teraFLOP/s``."""
    network: Mapping[str, Any]
    accelerator: str
    batch: int
    precision: str = "float32"
    microbatches: int = 1
    cuts: str | Sequence[int] = "even"
    """Number of layers of each part; ``even``: as many of the transformer's layers in each;
    ``flops``: the least operations in the largest part."""
    stages: int = 1
    virtual: int = 1
    schedule: str = "gpipe"
    recompute: str = "never"
    early: bool = False
    shards: int = 1
    devices: int = 0
    """0: those of one replica."""
    host_devices: int = 8
    network_gbit: float | None = None
    overlap: bool = False
    xla: bool = False
    """Whether XLA compiled the network."""
    fuses: bool = False
    """Whether the operations are fused where XLA compiled them."""
    updates: bool = True
    """Whether the update of the weights takes time."""
    slots: int = 1
    """Variables that the optimizer keeps for each weight."""
    adjusts: bool = False
    """Whether the batch is as large as memory allows, and ``batch`` the most."""
    activations: float = 1.0
    """Share of the activations' bytes that takes memory, for ``adjusts``."""
    calibrates: bool = False
    """Whether the efficiency of the accelerator comes from this row."""
    because: str = ""
    """Cause of a large error."""

    def step(self) -> Step:
        """The step of the row."""
        accelerator = (ACCELERATORS | TPUS)[self.accelerator]
        width = 2 if self.precision.startswith("mixed") else 4
        given = dict(self.network)
        fuses = layers.NOTHING
        if self.xla and self.fuses:
            fuses = layers.ALL if self.accelerator in TPUS else layers.KERNELS
        costs = NETWORKS[given.pop("name")](**given, width=width, fuses=fuses)
        replica = self.stages * self.shards
        step = Step(
            costs=costs,
            starts=self._starts(costs),
            accelerator=accelerator,
            links=collective_costs.links(accelerator.link_gb_per_second, self.network_gbit),
            precision=self.precision,
            batch=self.batch,
            microbatches=self.microbatches,
            stages=self.stages,
            virtual=self.virtual,
            schedule=self.schedule,
            recomputed=RECOMPUTED[self.recompute](self.microbatches),
            early=self.early,
            shards=self.shards,
            replicas=(self.devices or replica) // replica,
            host_devices=self.host_devices,
            gradient_bytes=width,
            overlap=self.overlap,
            slots=self.slots,
            updates=self.updates,
        )
        return adjusted(step, self.activations) if self.adjusts else step

    def _starts(self, costs: Sequence[StageCost]) -> list[int]:
        parts = self.stages * self.virtual
        if self.cuts == "even":
            return [1 + part * (len(costs) - 2) // parts for part in range(1, parts)]
        if self.cuts == "flops":
            return balance([(cost.flops,) for cost in costs], parts) or []
        counts = [int(count) for count in self.cuts]
        if len(counts) != parts or sum(counts) != len(costs):
            raise ValueError(f"{self.row}: {counts} are no parts of {len(costs)} layers")
        return list(itertools.accumulate(counts[:-1]))

    def flops(self) -> float:
        """Operations of a step (Narayanan et al. 2021, equation 3)."""
        net = Transformer(**{k: v for k, v in self.network.items() if k != "name"})
        tokens, hidden = self.batch * net.length, net.hidden
        share = 1 + net.length / (6 * hidden)
        share += net.vocabulary / (16 * net.layers * hidden)
        return 96 * tokens * net.layers * hidden**2 * share


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a paper."""

    paper: str
    table: str
    read: str
    """Where the figures were read."""
    rows: list[Row]

    def predictions(self, change: Callable[[Step], Step] = lambda step: step) -> list[float]:
        """Of each row, in the unit of the table; normalized ones divide by the first row.

        ``change``: of the assumptions of each step.
        """
        steps = [change(row.step()) for row in self.rows]
        seconds = [step.seconds() for step in steps]
        rates = [step.batch / taken for step, taken in zip(steps, seconds, strict=True)]
        result = []
        for row, rate, taken in zip(self.rows, rates, seconds, strict=True):
            if row.unit == "normalized":
                result.append(rate / rates[0])
            elif row.unit == "teraFLOP/s":
                result.append(row.flops() / taken / row.devices / 1e12)
            else:
                result.append(rate)
        return result


def tables() -> list[Table]:
    """All tables of all papers."""
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        paper = yaml.safe_load(path.read_text())
        for table in paper["tables"]:
            common = table.get("common", {})
            rows = [
                Row(
                    **common | row | {"network": common.get("network", {}) | row.get("network", {})}
                )
                for row in table["rows"]
            ]
            found.append(
                Table(paper=paper["paper"], table=table["table"], read=table["read"], rows=rows)
            )
    return found
