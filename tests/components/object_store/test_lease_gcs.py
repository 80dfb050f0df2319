"""A lease in ``gs://``: generations decide, through Google's own client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from gcs_server import Gcs, gcs_server
from messages import Messages

from stagecraft.components.object_store import leases
from stagecraft.components.object_store.endpoint import NoBucketError
from stagecraft.components.object_store.lease_gcs import GcsLease
from stagecraft.schemas.errors import TransientError, UserError
from stagecraft.trainer_module.checkpointing.lease import Conflict, Lease
from stagecraft.trainer_module.checkpointing.lease_record import LeaseHeldError, LeaseLostError

ADDRESS = "gs://bucket/checkpoints/key"


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gcs]:
    with gcs_server() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        monkeypatch.delenv("STAGECRAFT_STORE", raising=False)
        yield server


def lease(name: str = "", address: str = ADDRESS, seconds: float = 60.0) -> Lease:
    return leases.open_lease(address, name=name, seconds=seconds, grace=0.0)


def test_it_is_claimed_renewed_and_released(gcs: Gcs) -> None:
    first, second = lease("train-1"), lease("train-2")
    assert isinstance(first, GcsLease)
    first.claim()
    first.renew()
    with pytest.raises(LeaseHeldError, match="train-1, process") as refused:
        second.claim()
    assert refused.value.holder == first.holder and refused.value.place == ADDRESS
    assert list(gcs.objects) == [("bucket", "checkpoints/key/lease.json")]
    first.release()
    second.claim()


@pytest.mark.parametrize("seconds", [None, 0.0], ids=["free", "over"])
def test_two_at_once(gcs: Gcs, seconds: float | None) -> None:
    barrier = threading.Barrier(2)

    def claim(one: Lease) -> Any:
        barrier.wait(60)
        try:
            one.claim()
        except LeaseHeldError as error:
            return error
        return one.holder

    with ThreadPoolExecutor(2) as pool:
        for number in range(20):
            address = f"{ADDRESS}-{number}"
            if seconds is not None:
                lease("train-before", address, seconds).claim()
            both = [lease("train-1", address), lease("train-2", address)]
            answers = list(pool.map(claim, both))
            [refused] = [each for each in answers if isinstance(each, LeaseHeldError)]
            assert refused.holder in answers


def test_whoever_was_overtaken(gcs: Gcs) -> None:
    first, second = lease("train-1", seconds=0.0), lease("train-2")
    first.claim()
    second.claim()
    with pytest.raises(LeaseLostError) as lost:
        first.check()
    assert lost.value.holder == second.holder


def test_what_is_no_lease_is_replaced_once(gcs: Gcs) -> None:
    gcs.insert("bucket", "checkpoints/key/lease.json", b"{", None)
    found = lease()
    nothing, version = found.read()
    assert nothing is None and version is not None
    lease().claim()
    record, _ = lease().read()
    assert record is not None
    with pytest.raises(Conflict):
        found.write(record, version)


def test_a_bucket_that_is_not_there(gcs: Gcs) -> None:
    with pytest.raises(NoBucketError):
        lease(address="gs://nowhere/key").claim()


@pytest.mark.parametrize(("status", "kind"), [(403, UserError), (400, TransientError)])
def test_a_store_that_refuses(gcs: Gcs, status: int, kind: type[UserError]) -> None:
    gcs.failures = [status]
    with pytest.raises(kind, match=ADDRESS) as refused:
        lease().claim()
    assert type(refused.value) is kind


def test_a_store_that_fails_for_a_moment(gcs: Gcs) -> None:
    """Google's client asks again."""
    gcs.failures = [503]
    one = lease()
    one.claim()
    gcs.failures = [503]
    one.renew()
    assert gcs.failures == []


def test_without_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, messages: Messages
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("STAGECRAFT_STORE", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with messages.raises(UserError):
        lease()
