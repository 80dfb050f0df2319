"""Times the search for a topology, and the preparation of a model that memory could not hold.

    python benchmarks/planning/search.py [--model transformer_96_12288_96] [--length 2048]
                                         [--batch 1536] [--rounds 3]
                                         [--devices 1024xH100-80GB --devices 128x8xH100-80GB]

Columns:

    costs       seconds to find the costs of all pieces of the model, which is built without values
    search      seconds of the search alone; median of the rounds
    divisions   ways to divide the devices; how many of them do not fit into memory
    priced      topologies whose step was predicted
    best        workers x replicas x stages x shards of the fastest, and its predicted step
"""

from __future__ import annotations

import statistics
import time

import tensorflow as tf

from common import figures, options
from stagecraft.trainer_module.models import blank
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.planning.accelerators import NETWORK_GBIT, parse_cluster
from stagecraft.trainer_module.planning.model_pieces import prepare
from stagecraft.trainer_module.planning.search.search import Search, candidates
from stagecraft.trainer_module.planning.search.space import Space
from stagecraft.trainer_module.settings import (
    ParallelSettings,
    TaskSettings,
    TrainingSettings,
    TrainSettings,
)

DEVICES = ("1024xH100-80GB", "128x8xH100-80GB")


def main() -> None:
    parser = options(
        __doc__,
        model="transformer_96_12288_96",
        length=2048,
        batch=1536,
        network=NETWORK_GBIT,
        rounds=3,
    )
    parser.add_argument("--devices", action="append")
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")
    task = TaskSettings(name="language_model", args={"length": args.length})
    settings = TrainingSettings(
        task=task,
        train=TrainSettings(model=args.model, batch_size=args.batch, optimizer="adamw"),
        parallel=ParallelSettings(strategy="auto", precision="mixed_bfloat16"),
    )
    arguments = task.found.model_arguments("")
    model = assemble(settings.train, arguments, blank.scope(), "mixed_bfloat16", task=task.found)
    print(f"{args.model}: {model.count_params():,} parameters, {args.batch} examples a step")
    print("devices            costs  search  divisions  too large  priced  best")
    found = {}
    for text in args.devices or DEVICES:
        cluster = parse_cluster(text)
        begun = time.perf_counter()
        prepared = prepare(
            model,
            settings,
            "CPU:0",
            accelerator=cluster.accelerator,
            network_gbit=args.network,
            for_search=True,
        )
        costs = time.perf_counter() - begun
        seconds = []
        for _ in range(args.rounds):
            fresh = prepared.work.copy()
            begun = time.perf_counter()
            space = Space(fresh, hosts=cluster.hosts, devices=cluster.devices)
            result = Search(fresh, space).run()
            seconds.append(time.perf_counter() - begun)
        best = "nothing fits"
        if result.best:
            (first, *_) = candidates(fresh, result.best)
            names = ("workers", "replicas", "stages", "shards")
            best = " x ".join(str(first.settings[name]) for name in names)
            best += f", {first.step:.3g} s"
            # A search in which nothing fits predicts no step: its time says little.
            found[f"{text}: seconds of the search"] = statistics.median(seconds)
        print(
            f"{text:17}  {costs:5.1f}  {statistics.median(seconds):6.1f}  {result.divisions:9,}  "
            f"{result.too_large:9,}  {result.priced:6,}  {best}",
            flush=True,
        )
    figures(lower=found)


if __name__ == "__main__":
    main()
