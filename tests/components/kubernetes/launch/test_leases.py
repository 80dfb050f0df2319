"""What a step holds while its job runs, and what becomes of it when the step or the job ends."""

import time
from typing import Any

import pytest
from kube_api import KubeApi

from stagecraft.components.kubernetes.api.connection import connect
from stagecraft.components.kubernetes.jobs.pods import GRACE_SECONDS
from stagecraft.components.kubernetes.launch import leases
from stagecraft.components.object_store import leases as store_leases
from stagecraft.trainer_module.checkpointing.lease import Lease, LeaseHeldError


def of(server: KubeApi, folder: str, name: str) -> list[Lease]:
    return leases.leases_for(connect(), server.namespace, folder, name=name, seconds=900.0)


def until(lease: Lease) -> float:
    """Seconds until another one may take it."""
    found, _ = lease.read()
    return found.until - time.time() if found else 0.0


def test_on_a_volume_the_cluster_has_it(server, tmp_path):
    first, second = (of(server, str(tmp_path / "key"), name) for name in ("train-1", "train-2"))
    assert len(first) == 1
    with leases.held(first, lambda: True):
        with (
            pytest.raises(LeaseHeldError, match=r"train-1 \(process"),
            leases.held(second, lambda: True),
        ):
            pytest.fail("two hold it")
        with leases.held(of(server, str(tmp_path / "other"), "train-3"), lambda: True):
            pass
    with leases.held(second, lambda: True):
        pass
    assert not (tmp_path / "key").exists()  # the chief's pod makes its own there


def test_in_a_store_another_namespace_sees_it(server, bucket):
    folder = f"s3://{bucket}/checkpoints/key"
    first = of(server, folder, "train-1")
    assert len(first) == 2
    server.namespace = "another"
    with leases.held(first, lambda: True):
        second = of(server, folder, "train-2")
        with (
            pytest.raises(LeaseHeldError, match=r"train-1 \(process"),
            leases.held(second, lambda: True),
        ):
            pytest.fail("two hold it")
        assert until(second[0]) == 0  # what it had is free again
    assert until(first[1]) <= 0


@pytest.mark.parametrize(("is_over", "seconds"), [(True, GRACE_SECONDS), (False, 900)])
def test_after_a_failure(server, bucket, is_over, seconds):
    """Pods that are about to end save first; those that go on do so until the lease is over."""
    held = of(server, f"s3://{bucket}/key", "train-1")
    with pytest.raises(KeyError), leases.held(held, lambda: is_over):
        raise KeyError
    for lease in held:
        assert seconds - 5 < until(lease) <= seconds + (0 if is_over else GRACE_SECONDS)


def test_a_lease_in_a_store_that_fails_for_a_while(server, bucket, monkeypatch):
    held = of(server, f"s3://{bucket}/key", "train-1")
    monkeypatch.setattr("stagecraft.components.object_store.folder._PAUSES", (0.0,))
    write, failures = store_leases._put, [OSError(5, "Service unavailable")]

    def fails_once(place: Any, content: bytes, **condition: str) -> str:
        if failures:
            with store_leases.explained(place.uri):
                raise failures.pop()
        return write(place, content, **condition)

    monkeypatch.setattr(store_leases, "_put", fails_once)
    with leases.held(held, lambda: True):
        assert until(held[1]) > 800
    assert failures == []
