"""A training under each kind of job, and each way in which processes work together."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import tensorflow as tf

pytestmark = pytest.mark.slow

IN_STEP = {"strategy": "multi_worker_mirrored", "workers": 2}


@pytest.mark.parametrize("kind", ["job", "tfjob", "trainjob"])
def test_two_workers_in_step(step: Any, cluster: Any, capfd: Any, kind: str) -> None:
    one = step(kind)
    one.run(IN_STEP)
    assert one.model.get_int_custom_property("steps") == 4
    loaded = tf.saved_model.load(f"{one.model.uri}/Format-Serving")
    assert "serving_images" in loaded.signatures
    printed = capfd.readouterr().err
    assert "worker 0: " in printed and "worker 1: " in printed
    assert len(cluster.pods) == 2 and not cluster.running()
    assert list((one.volume / "jobs").iterdir()) == []
    assert (one.volume / "checkpoints").is_dir()


def test_a_chief_and_parameter_servers(step: Any, cluster: Any) -> None:
    one = step("job")
    one.run({"strategy": "parameter_server", "workers": 2, "ps": 1})
    assert one.model.get_int_custom_property("steps") == 4
    cluster.wait_for(lambda: not cluster.running())


def test_one_process(step: Any, cluster: Any) -> None:
    one = step("job")
    one.run({})
    assert one.model.get_int_custom_property("steps") == 4
    assert [path.name for path in pathlib.Path(one.model.uri).iterdir()] == ["Format-Serving"]
