"""Processes of a training's job that crash, refuse, hang, or never end."""

import json
import re
import signal
from typing import Any

import pytest

from stagecraft.common.errors import UserError

IN_STEP = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVED = {"strategy": "parameter_server", "workers": 1, "ps": 1}


@pytest.mark.slow
@pytest.mark.parametrize("place", [pytest.param("volume", marks=pytest.mark.full), "store"])
def test_a_worker_that_is_killed(step, cluster, aside, capfd, request, place):
    """The others lose it, all start again, and go on from a checkpoint that the chief has sent."""
    one = step() if place == "volume" else request.getfixturevalue("stored")
    running = aside(one.run, IN_STEP, {"steps": 40})

    def has_saved(pod: Any) -> bool:
        return sum("phase: save" in line for line in pod.lines) > 2

    cluster.wait_for(lambda: any(map(has_saved, cluster.pods)) or running.done())
    next(pod for pod in cluster.running() if "-1-" in pod.name).signal(signal.SIGKILL)
    running.result()
    assert one.model.get_int_custom_property("steps") == 40
    assert len(cluster.pods) > 2
    printed = capfd.readouterr().err
    assert "worker 1: pod" in printed and "failed: exit code 137" in printed
    for role in ("worker 0", "worker 1"):
        assert re.search(rf"{role}: .* Resuming from step [1-9]\d* of 40,", printed)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("job", "PodFailurePolicy: Container training for pod"),
        ("tfjob", 'TFJobFailed: job "train-'),
        ("trainjob", "FailedJobs: jobset failed due to one or more job failures"),
    ],
)
def test_one_that_ends_for_good(step, cluster, server, capfd, kind, why):
    """Its secret is nowhere but in the pod."""
    one = step(kind)
    with pytest.raises(UserError) as error:
        one.run(IN_STEP, run_fn="stub_training.refuses")
    name = f"train-{one.job_folder.name.removeprefix('train-')}"
    first, second, *lines = str(error.value).splitlines()
    assert name in first and f"failed: {why}" in first
    assert second.startswith("worker 1: pod ") and second.endswith("failed: exit code 1")
    assert lines[0].startswith("  worker 1 has looked")
    assert "train.batch_size: 7: expected something else" in lines[-1]
    assert not cluster.running()
    assert len(cluster.pods) == 2
    written = [path.read_text(errors="replace") for path in one.volume.rglob("*") if path.is_file()]
    asked = [json.dumps(request.body) for request in server.requests]
    assert any("secretKeyRef" in body for body in asked)
    for text in (*capfd.readouterr(), str(error.value), *written, *asked):
        assert "s3cr3t-v4lue" not in text


def test_one_that_hangs(step, cluster):
    one = step(deadline_seconds=3)
    with pytest.raises(UserError, match="hangs"):
        one.run(IN_STEP, run_fn="stub_training.hangs")
    assert not cluster.running()


@pytest.mark.parametrize(
    ("kind", "why"), [("job", "MaxFailedIndexes"), ("tfjob", "processes were lost")]
)
def test_one_that_crashes_again_and_again(step, cluster, kind, why):
    """The training operator does not count: somebody else has to."""
    one = step(kind)
    with pytest.raises(UserError, match=why) as error:
        one.run(IN_STEP | {"max_restarts": 1}, run_fn="stub_training.crashes")
    _, second, *lines = str(error.value).splitlines()
    assert " failed: exit code 139" in second or second.endswith(" was deleted")
    assert lines == [f"  {second.partition(':')[0]} crashes"]
    assert 3 <= len(cluster.pods) <= 8
    cluster.wait_for(lambda: not cluster.running())


@pytest.mark.parametrize("kind", ["job", "tfjob"])
def test_those_that_serve_are_ended_with_the_chief(step, cluster, kind):
    one = step(kind)
    one.run(SERVED, run_fn="stub_training.done_or_serves")
    assert one.model.get_int_custom_property("steps") == 4
    assert len(cluster.pods) == 3 and not cluster.running()
