"""A pod is evicted: its training goes on from the last checkpoint, and ends as without that."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from trained_weights import on_one_device, weights

from stagecraft.trainer_module.parity import cases, criteria

STEPS = 40

TRAIN = {
    "steps": STEPS,
    "learning_rate": cases.SMALL_LEARNING_RATE,
    "schedule": "constant",
    "warmup_steps": 0,
}
"""So that training does not amplify rounding: criteria.py."""

IN_STEP = {"strategy": "multi_worker_mirrored", "workers": 2, "precision": "float64"}


@pytest.fixture(scope="module")
def known() -> dict[str, np.ndarray]:
    """What ``expected`` has found: the same for each kind."""
    return {}


@pytest.fixture
def expected(step: Any, known: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not known:
        known.update(on_one_device(step(), TRAIN, STEPS))
    return known


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["job", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("tfjob", "trainjob"))],
)
def test_a_worker(
    expected: Any, step: Any, cluster: Any, aside: Any, capfd: Any, kind: str
) -> None:
    """A Job replaces the pod. A TFJob fails, and the launcher starts it anew."""
    one = step(kind)
    running = aside(one.run, IN_STEP, TRAIN)

    def has_saved(pod: Any) -> bool:
        return sum("phase: save" in line for line in pod.lines) > 2

    cluster.wait_for(lambda: any(map(has_saved, cluster.pods)) or running.done())
    evicted = next(pod for pod in cluster.running() if re.search(r"-1(-\d{5})?$", pod.name))
    cluster.evict(evicted)
    running.result()
    printed = capfd.readouterr().err
    for role in ("worker 0", "worker 1"):
        assert re.search(rf"{role}: .* Resuming from step [1-9]\d* of {STEPS},", printed)
    no_more = dict.fromkeys(expected, 0.0)  # than the tolerance
    assert (parity := criteria.trajectory(weights(one, STEPS), expected, no_more)).equal, parity
    assert len(cluster.pods) == 4 and not cluster.running()
    assert len(cluster.gone) == (kind == "tfjob")
