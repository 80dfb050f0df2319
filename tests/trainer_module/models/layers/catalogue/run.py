"""Trains the models of rows under Keras and under the engines, and says how they compare.

    python -m catalogue.run OUT.json TOPOLOGIES [NAME ...]

With tests/trainer_module/models/layers on the path. TOPOLOGIES are separated by commas. Two logical
CPUs.
"""

import gc
import json
import sys
import time
from typing import Any

from catalogue import keras_layers, others
from catalogue.draws import probability
from catalogue.rows import Row
from catalogue.trainings import Values, by_engine, by_keras, difference

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel.topology import configure_devices
from stagecraft.trainer_module.settings import ParallelSettings

TOPOLOGIES: dict[str, dict[str, Any]] = {
    "one_device": {},
    "mirrored": {"strategy": "mirrored", "replicas": 2},
    "stages": {"strategy": "grid", "stages": 2, "microbatches": 2},
    "remat": {"remat": True},
    "jit": {"jit": True},
}
"""Name on the page -> parallel settings."""

PARTS = ("mirrored", "stages")
"""Those that divide a batch in two."""

TOLERANCE = 1e-10
SINGLE = 1e-6
"""Of layers in float32: some roundings of 6e-8, of weights and losses below 2."""

UNLIKELY = 1e-4
"""Probability below which two samples are said to be of two distributions."""

EQUAL, BY_PART, DISTRIBUTION, REFUSED = "equal", "equal by part", "equal in distribution", "refused"
WRONG = "wrong"


def main(out: str, topologies: str, *names: str) -> None:
    configure_devices(ParallelSettings(virtual_devices=2))
    results: dict[str, Any] = {}
    for row in all_rows():
        if row.needs or (names and row.name not in names):
            continue
        start = time.perf_counter()
        results[row.name] = examine(row, topologies.split(","))
        print(f"{row.name}: {time.perf_counter() - start:.1f} s", flush=True)
        for name, (verdict, why) in results[row.name].items():
            print(f"    {name:10}  {verdict}: {why}", flush=True)
        gc.collect()
    with open(out, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)


def all_rows() -> list[Row]:
    """In the order of the page."""
    return [*keras_layers.rows(), *others.rows()]


def examine(row: Row, topologies: list[str]) -> dict[str, list[str]]:
    """Topology -> verdict, and why."""
    references: dict[str, list[Values]] = {}
    found = {}
    for name in topologies:
        try:
            found[name] = _judge(row, name, references)
        except UserError as error:
            found[name] = [REFUSED, str(error)]
        except Exception as error:  # whatever Keras or TensorFlow raises
            found[name] = [WRONG, f"{type(error).__name__}: {error}"[:600]]
    return found


def _judge(row: Row, name: str, references: dict[str, list[Values]]) -> list[str]:
    ours, tolerance = _train(row, TOPOLOGIES[name]), SINGLE if row.single else TOLERANCE
    if name == "one_device":
        references["one_device"] = ours

    def reference(key: str, **parallel: Any) -> list[Values]:
        if key not in references:
            references[key] = by_keras(row) if key == "keras" else _train(row, parallel)
        return references[key]

    if row.by_part and name in PARTS:
        # As Keras under MirroredStrategy: each replica has statistics of its own.
        off, where = difference(ours, reference("parts", accumulate=2), seeds=True)
        return [BY_PART if off <= tolerance else WRONG, f"{off:.2g} {where}"]
    if row.draws == "keyed":
        off, where = difference(ours, reference("one_device"), seeds=True)
        if off > tolerance:
            return [WRONG, f"{off:.2g} {where}, from one device"]
    others = (*PARTS, "jit")
    if row.draws == "keyed" or row.unseeded or (row.draws == "own" and name in others):
        likely = references.setdefault("likely", probability(row))  # type: ignore[arg-type]
        return [DISTRIBUTION if likely > UNLIKELY else WRONG, f"p = {likely:.2g}"]
    off, where = difference(ours, reference("keras"), seeds=row.draws != "keyed")
    return [EQUAL if off <= tolerance else WRONG, f"{off:.2g} {where}"]


def _train(row: Row, parallel: dict[str, Any]) -> list[Values]:
    return by_engine(row, ParallelSettings(**parallel, precision=row.precision, virtual_devices=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
