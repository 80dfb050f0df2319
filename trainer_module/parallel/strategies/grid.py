"""Replicas of a model that is cut into stages, each stage on its own device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagecraft.trainer_module.parallel import cluster, topology as topologies
from stagecraft.trainer_module.parallel.cluster import Cluster
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.parallel.strategy import ParityCase, Strategy
from stagecraft.trainer_module.parallel.topology import Topology


class Grid(Strategy):
    """Without ``tf.distribute``: CollectiveReduceV2 between the replicas of a stage or shard."""

    name = "grid"
    description = "synchronous replicas of a model in stages, each stage on its own device"
    all_reduces = ("auto", "ring", "nccl")
    several_processes = True
    divides_calls = True
    cuts_model = True
    keras_replicas = False
    parity_cases = {
        "stages-2": ParityCase("the model in two stages", {"stages": 2}),
        "stages-3": ParityCase("in three stages", {"stages": 3}),
        "stages-4": ParityCase("in four stages", {"stages": 4}),
        "grid-2x2": ParityCase(
            "two replicas of two stages, two microbatches",
            {"replicas": 2, "stages": 2, "microbatches": 2},
        ),
        "grid-2x3": ParityCase(
            "two replicas of three stages, two microbatches, two accumulation steps",
            {"replicas": 2, "stages": 3, "microbatches": 2, "accumulate": 2},
        ),
        "grid-2x1x2": ParityCase(
            "two processes, each of two stages, two microbatches",
            {"workers": 2, "stages": 2, "microbatches": 2},
        ),
        "grid-2x2x2": ParityCase(
            "two processes, each of two replicas of two stages, two microbatches",
            {"workers": 2, "replicas": 2, "stages": 2, "microbatches": 2},
        ),
        "virtual-stages": ParityCase(
            "two stages of two virtual stages, four microbatches",
            {"stages": 2, "virtual_stages": 2, "microbatches": 4},
        ),
        "shards-2": ParityCase("large layers over two devices", {"shards": 2}),
        "shards-3": ParityCase("large layers over three devices", {"shards": 3}),
        "shards-2x2x2": ParityCase(
            "two replicas of two stages, large layers over two devices, two microbatches",
            {"replicas": 2, "stages": 2, "shards": 2, "microbatches": 2},
            {"clip_norm": 0.1},
        ),
        "shards-remat": ParityCase(
            "large layers over two devices, two accumulation steps, activations computed again",
            {"shards": 2, "accumulate": 2, "remat": True},
        ),
        "shards-workers": ParityCase(
            "two processes, in each large layers over two devices",
            {"workers": 2, "shards": 2},
        ),
        "zero": ParityCase(
            "two replicas of two stages that divide the optimizer slots",
            {"replicas": 2, "stages": 2, "zero": 1},
            {"clip_norm": 0.1},
        ),
        "microbatches-2": ParityCase("two stages", {"stages": 2, "microbatches": 2}),
        "microbatches-4": ParityCase("two stages", {"stages": 2, "microbatches": 4}),
        "microbatches-8": ParityCase("two stages", {"stages": 2, "microbatches": 8}),
        "remat": ParityCase(
            "two stages, two microbatches, activations computed again",
            {"stages": 2, "microbatches": 2, "remat": True},
        ),
        "clip": ParityCase(
            "two replicas of two stages, clipped in every step",
            {"replicas": 2, "stages": 2},
            {"clip_norm": 0.1},
        ),
        "bfloat16": ParityCase(
            "two stages, two microbatches, mixed_bfloat16",
            {"stages": 2, "microbatches": 2, "precision": "mixed_bfloat16"},
        ),
    }
    engine = "stagecraft.trainer_module.engines.grid_engine:GridEngine"
    engine_functions = ("stagecraft.trainer_module.planning.planner:make_plan_of_workers",)

    def device_groups(self, parallel: ParallelSettings) -> Sequence[Sequence[str]]:
        """The replicas of each shard of each stage."""
        each = parallel.stages * parallel.shards
        return [parallel.device_names[place::each] for place in range(each)]

    def cluster(self, parallel: ParallelSettings) -> Cluster | None:
        """The workers; None: there is one."""
        return cluster.in_step(parallel) if parallel.workers > 1 else None

    def conflicts(self, topology: Topology, earlier: Topology) -> bool:
        """Collectives between workers are set up before anything else uses TensorFlow."""
        return topology.workers > 1

    def connect(self, topology: Topology, parallel: ParallelSettings) -> Any:
        """Nothing to connect; between workers, starts the server that collectives go through."""
        if topology.workers > 1:
            import tensorflow as tf

            with topologies.connecting():
                tf.distribute.MultiWorkerMirroredStrategy()

    def alternative(self, replicas: int, stages: int) -> str | None:
        """Itself."""
        return self.name

    def label(self, replicas: int, stages: int, shards: int = 1) -> str:
        """Label, such as ``2 × 3 grid``, or ``2 × 3 × 2 grid`` with shards."""
        return " × ".join(map(str, [replicas, stages] + [shards] * (shards > 1))) + " grid"


GRID = Grid()
