"""Every engine computes what one device does; devices of each number in a process of their own."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from stagecraft.trainer_module.parallel.roles import roles
from stagecraft.trainer_module.settings import ParallelSettings

TOPOLOGIES: dict[str, dict[str, Any]] = {
    # With as many logical devices as the others, so that all have the same threads.
    "one_device": {"virtual_devices": 2},
    "two_turns": {"accumulate": 2, "virtual_devices": 2},
    "four_turns": {"accumulate": 4, "virtual_devices": 2},
    "mirrored": {"strategy": "mirrored", "replicas": 2, "virtual_devices": 2},
    "central_storage": {
        "strategy": "central_storage",
        "replicas": 2,
        "accumulate": 2,
        "virtual_devices": 2,
    },
    "grid_3_stages": {
        "strategy": "grid",
        "stages": 3,
        "microbatches": 2,
        "accumulate": 2,
        "remat": True,
        "virtual_devices": 3,
    },
    "grid_2x2": {
        "strategy": "grid",
        "replicas": 2,
        "stages": 2,
        "microbatches": 2,
        "virtual_devices": 4,
    },
    "grid_2x1x2": {
        "strategy": "grid",
        "workers": 2,
        "stages": 2,
        "microbatches": 2,
        "virtual_devices": 2,
    },
    "grid_2x2x2": {
        "strategy": "grid",
        "workers": 2,
        "replicas": 2,
        "stages": 2,
        "costs": "measured",
        "virtual_devices": 4,
    },
    "workers_2": {"strategy": "multi_worker_mirrored", "workers": 2, "accumulate": 2},
}

SAME_PARTS = {
    "mirrored": "two_turns",
    "central_storage": "four_turns",
    "grid_3_stages": "four_turns",
    "grid_2x2": "four_turns",
    "grid_2x1x2": "four_turns",
    "grid_2x2x2": "four_turns",
    "workers_2": "four_turns",
}
"""One device that normalises over the same parts of each batch."""

IN_ONE_PROCESS = ("one_device", "two_turns", "four_turns", "mirrored")
"""Those of two devices, and among the slow tests: TensorFlow is imported once for all of them."""

Results = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Results]:
    """Topology -> what drive.py wrote, driven when first asked for."""
    folder = tmp_path_factory.mktemp("driven")

    @functools.cache
    def drive(*topologies: str) -> dict[str, Results]:
        script = pathlib.Path(__file__).with_name("drive.py")
        members = roles(ParallelSettings(**TOPOLOGIES[topologies[0]]))
        with contextlib.ExitStack() as stack:
            started = []
            for role in members:
                words = [
                    (out_of(name, role.name), json.dumps(TOPOLOGIES[name])) for name in topologies
                ]
                log = stack.enter_context(words[0][0].with_suffix(".log").open("w+"))
                process = subprocess.Popen(
                    [sys.executable, script, *itertools.chain(*words)],
                    env=os.environ | ({"TF_CONFIG": role.tf_config} if role.tf_config else {}),
                    stdout=log,
                    stderr=log,
                )
                stack.callback(process.wait)
                stack.callback(process.kill)
                started.append((process, log))
            for process, log in started:
                code = process.wait(480)  # for all of its topologies
                log.seek(0)
                assert code == 0, log.read()[-3000:]
        return {name: same([out_of(name, role.name) for role in members]) for name in topologies}

    def out_of(topology: str, role: str) -> pathlib.Path:
        return folder / f"{topology} {role}.npz"

    def same(outs: list[pathlib.Path]) -> Results:
        first, *others = (dict(np.load(out)) for out in outs)
        for other in others:
            assert _bytes(other) == _bytes(first), "workers drift apart"
        return first

    def of(topology: str) -> Results:
        topologies = IN_ONE_PROCESS if topology in IN_ONE_PROCESS else (topology,)
        return drive(*topologies)[topology]

    return of


def _bytes(results: Results) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in results.items()}


def _select(results: Results, prefix: str) -> Results:
    return {
        name.removeprefix(prefix): value
        for name, value in results.items()
        if name.startswith(prefix)
    }


def marked(names: Iterable[str]) -> list[Any]:
    """As parameters; not all of them are among the fast tests."""
    # tests/trainer_module/parity has the other ones, or wider ones, in CI.
    slow = (*IN_ONE_PROCESS, "grid_3_stages")
    return [
        pytest.param(name, marks=pytest.mark.slow if name in slow else pytest.mark.full)
        for name in names
    ]


SPLIT = marked(SAME_PARTS)


@pytest.mark.parametrize("model", ["plain", "norm"])
@pytest.mark.parametrize("topology", SPLIT)
def test_any_topology_computes_what_one_device_does(
    driven: Callable[[str], Results], topology: str, model: str
) -> None:
    # Whatever is split how: only what normalises over its part of a batch sees the parts.
    expected = driven("one_device" if model == "plain" else SAME_PARTS[topology])
    found = driven(topology)
    for name, value in _select(expected, f"{model}/gradients/").items():
        # Sums of at most 8 * 16 float32 terms, in another order.
        bound = 2.0**-23 * 128 * max(1.0, np.abs(value).max())
        np.testing.assert_allclose(
            found[f"{model}/gradients/{name}"], value, rtol=0, atol=bound, err_msg=name
        )
    for step in (1, 6):
        one, two = _select(expected, f"{model}/{step}/"), _select(found, f"{model}/{step}/")
        assert one.keys() == two.keys(), "a checkpoint names no topology"
        if model == "norm":
            continue  # Adam divides by what may be rounding alone
        for name, value in one.items():
            # The same summands in another order, in float32: a few units in the last place of
            # each gradient, times the learning rate (0.05), over 6 steps of momentum 0.9.
            np.testing.assert_allclose(two[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("topology", marked(TOPOLOGIES))
def test_evaluates_every_example_once(driven: Callable[[str], Results], topology: str) -> None:
    loss, accuracy, examples = driven(topology)["plain/evaluation"]
    expected = driven("one_device")["plain/evaluation"]
    assert examples == 21
    assert accuracy == expected[1]
    assert accuracy * 21 == pytest.approx(round(accuracy * 21), abs=1e-9)
    assert loss == pytest.approx(expected[0], rel=1e-6)


@pytest.mark.parametrize("topology", marked(TOPOLOGIES))
@pytest.mark.parametrize("model", ["plain", "norm"])
def test_taking_over_changes_no_bit(
    driven: Callable[[str], Results], topology: str, model: str
) -> None:
    undisturbed = _select(driven(topology), f"{model}/6/")
    resumed = _select(driven(topology), f"{model}/resumed/")
    assert undisturbed.keys() == resumed.keys()
    for name, value in undisturbed.items():
        assert value.tobytes() == resumed[name].tobytes(), name


@pytest.mark.parametrize("topology", SPLIT)
@pytest.mark.parametrize("model", ["plain", "norm"])
def test_replicas_do_not_drift_apart(
    driven: Callable[[str], Results], topology: str, model: str
) -> None:
    assert driven(topology)[f"{model}/drift"] == 0.0


@pytest.mark.parametrize("topology", marked(TOPOLOGIES))
def test_sums_over_workers(driven: Callable[[str], Results], topology: str) -> None:
    workers = TOPOLOGIES[topology].get("workers", 1)
    assert list(driven(topology)["sum"]) == [workers, sum(range(workers))]


@pytest.mark.parametrize("topology", SPLIT)
def test_moving_statistics_are_the_mean_over_the_parts(
    driven: Callable[[str], Results], topology: str
) -> None:
    name = "norm/1/model/batch_normalization/moving_mean"
    # The mean of the parts' means is the mean of the whole: the first layer sees the same.
    np.testing.assert_allclose(driven(topology)[name], driven("one_device")[name], atol=1e-6)


@pytest.mark.slow
def test_ema_weights_follow_the_weights(driven: Callable[[str], Results]) -> None:
    results = driven("one_device")
    weights = _select(results, "norm/6/model/")
    averages = _select(results, "norm/6/ema/")
    assert averages
    for path, average in averages.items():
        assert not np.array_equal(average, weights[path]), path
