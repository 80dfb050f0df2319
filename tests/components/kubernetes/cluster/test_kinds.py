"""A training under each kind of job, and each way in which processes work together.

Each trains the same model as one device in one process: the same weights in float64.
"""

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from trained_weights import on_one_device, weights

from stagecraft.trainer_module.parity import cases, criteria

IN_STEP = {"strategy": "multi_worker_mirrored", "workers": 2, "precision": "float64"}

SLOWLY = {"learning_rate": cases.SMALL_LEARNING_RATE, "schedule": "constant", "warmup_steps": 0}
"""So that training does not amplify rounding: criteria.py."""


@pytest.fixture(scope="module")
def known() -> dict[str, np.ndarray]:
    """What ``expected`` has found: the same for each kind."""
    return {}


@pytest.fixture
def expected(step: Any, known: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not known:
        known.update(on_one_device(step(), SLOWLY, 4))
    return known


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("job", marks=pytest.mark.full),
        pytest.param("trainjob", marks=pytest.mark.slow),
        pytest.param("tfjob", marks=pytest.mark.full),
        pytest.param("job without a volume", marks=pytest.mark.full),
    ],
)
def test_two_workers_in_step(expected, step, cluster, capfd, kind, request):
    stored = kind == "job without a volume"
    one = request.getfixturevalue("stored") if stored else step(kind)
    one.run(IN_STEP, SLOWLY)
    no_more = dict.fromkeys(expected, 0.0)  # than the tolerance
    assert (parity := criteria.trajectory(weights(one, 4), expected, no_more)).equal, parity
    assert one.model.get_int_custom_property("steps") == 4
    loaded = tf.saved_model.load(f"{one.model.uri}/Format-Serving")
    assert "serving_images" in loaded.signatures
    printed = capfd.readouterr().err
    assert "worker 0: " in printed and "worker 1: " in printed
    assert len(cluster.pods) == 2 and not cluster.running()
    assert stored or list((one.volume / "jobs").iterdir()) == []
    assert stored or one.checkpoints.is_dir()


@pytest.mark.parametrize(
    "kind",
    [pytest.param("job", marks=pytest.mark.slow), pytest.param("tfjob", marks=pytest.mark.full)],
)
def test_a_chief_and_parameter_servers(step, cluster, kind):
    one = step(kind)
    parallel = {"strategy": "parameter_server", "workers": 2, "ps": 1}
    one.run(parallel | {"evaluator": kind == "tfjob"}, {"checkpoint_every": 2})
    assert one.model.get_int_custom_property("steps") == 4
    cluster.wait_for(lambda: not cluster.running())


@pytest.mark.full
def test_one_process(step, cluster):
    one = step("job")
    one.run({})
    assert one.model.get_int_custom_property("steps") == 4
    assert [path.name for path in pathlib.Path(one.model.uri).iterdir()] == ["Format-Serving"]
