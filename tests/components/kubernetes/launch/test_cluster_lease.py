"""A Lease of the cluster: the API server's answer decides who has it."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kubernetes_validate
import pytest
from kube_api import KubeApi
from kube_api.store import Resource

from stagecraft.components.kubernetes.api.connection import Refused, connect
from stagecraft.components.kubernetes.launch.leases import RECORD, ClusterLease, object_name
from stagecraft.trainer_module.checkpointing.lease import (
    Conflict,
    Holder,
    LeaseHeldError,
    LeaseLostError,
)

FOLDER = "/mnt/training/checkpoints/key"


def lease(
    server: KubeApi, name: str = "", folder: str = FOLDER, seconds: float = 60.0
) -> ClusterLease:
    return ClusterLease(connect(), server.namespace, folder, name=name, seconds=seconds, grace=0.0)


def kind(server: KubeApi) -> Resource:
    return server.resources["coordination.k8s.io", "v1", "leases"]


def there(server: KubeApi) -> list[dict[str, Any]]:
    return server.store.list(kind(server), server.namespace, lambda manifest: True)


def winners(server: KubeApi, leases: list[ClusterLease]) -> list[Holder]:
    """Of those that claim in the same instant; the others name them."""
    barrier = threading.Barrier(len(leases))

    def claim(one: ClusterLease) -> Holder | LeaseHeldError:
        barrier.wait(60)
        try:
            one.claim()
        except LeaseHeldError as error:
            return error
        return one.holder

    with ThreadPoolExecutor(len(leases)) as pool:
        answers = list(pool.map(claim, leases))
    found = [each for each in answers if isinstance(each, Holder)]
    assert {each.holder for each in answers if isinstance(each, LeaseHeldError)} == set(found)
    return found


def test_fifty_at_once(server):
    assert len(winners(server, [lease(server, f"train-{each}") for each in range(50)])) == 1
    assert len(there(server)) == 1


def test_two_at_once(server):
    """One that is free, and one that its holder has not renewed."""
    for number in range(40):
        folder = f"{FOLDER}-{number}"
        if number % 2:
            lease(server, "train-before", folder, seconds=0.0).claim()
        both = [lease(server, f"train-{each}", folder) for each in range(2)]
        assert len(winners(server, both)) == 1


def test_what_kubectl_shows(server):
    one = lease(server, "train-1")
    one.claim()
    [found] = there(server)
    for version in ("1.29", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(found, version, strict=True)
    assert found["metadata"]["name"] == object_name(FOLDER)
    assert found["metadata"]["annotations"]["stagecraft.dev/checkpoints"] == FOLDER
    spec = found["spec"]
    assert spec["holderIdentity"] == str(one.holder) and spec["leaseDurationSeconds"] == 60
    first = spec["renewTime"]
    one.renew()
    [found] = there(server)
    assert found["spec"]["renewTime"] > first
    assert found["spec"]["acquireTime"] == spec["acquireTime"]
    one.release()
    assert there(server) == []


def test_whoever_was_overtaken_leaves_the_other_alone(server):
    first, second = lease(server, "train-1", seconds=0.0), lease(server, "train-2")
    first.claim()
    second.claim()
    with pytest.raises(LeaseLostError) as lost:
        first.check()
    assert lost.value.holder == second.holder and lost.value.place == FOLDER
    first.release()
    second.renew()


def test_a_release_that_comes_late(server):
    """It has not seen that another one has taken the lease."""
    first, second = lease(server, "train-1", seconds=0.0), lease(server, "train-2")
    first.claim()
    second.claim()
    first.release()
    assert [each["spec"]["holderIdentity"] for each in there(server)] == [str(second.holder)]


def test_a_lease_that_somebody_deletes(server):
    one = lease(server)
    one.claim()
    server.store.delete(kind(server), server.namespace, object_name(FOLDER))
    with pytest.raises(LeaseLostError, match="it was removed"):
        one.renew()
    assert lease(server).read() == (None, None)


def test_one_that_was_deleted_since_it_was_read(server):
    one, other = lease(server, seconds=0.0), lease(server)
    one.claim()
    found, version = other.read()
    assert found is not None
    one.release()
    with pytest.raises(Conflict):
        other.write(found, version)
    other.claim()
    with pytest.raises(Conflict):  # another object by the same name
        one.write(found, version)


@pytest.mark.parametrize("change", [{"metadata": {"annotations": None}}, {"metadata": {}}])
def test_one_that_another_program_has_written(server, change):
    lease(server).claim()
    taken = {"holderIdentity": "ci", "renewTime": "2099-01-01T00:00:00.000000Z"}
    annotations = {RECORD: "{"} if change == {"metadata": {}} else None
    patch = {"metadata": {"annotations": annotations}, "spec": taken}
    name = object_name(FOLDER)
    server.store.patch(kind(server), server.namespace, name, patch)
    with pytest.raises(LeaseHeldError, match="ci uses") as refused:
        lease(server).claim()
    assert refused.value.until > time.time()
    free = {"spec": {"holderIdentity": None}}
    server.store.patch(kind(server), server.namespace, name, free)
    lease(server).claim()


def test_without_the_permission(server):
    server.forbid("create", "leases.coordination.k8s.io")
    with pytest.raises(Refused) as refused:
        lease(server).claim()
    assert refused.value.status == 403


def test_an_answer_that_is_lost(server):
    """The first request succeeded; the second one finds the lease that it made."""
    one = lease(server, "train-1")
    write = one.write

    def twice(*given: Any) -> str:
        write(*given)
        return write(*given)

    one.write = twice  # type: ignore[method-assign]
    one.claim()
    one.renew()
    [found] = there(server)
    assert json.loads(found["metadata"]["annotations"][RECORD])["holder"]["name"] == "train-1"
