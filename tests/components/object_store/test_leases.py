"""Leases in stores: of any number that claim one at once, one has it; the others know who."""

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import starts
from gcs_server import Gcs, gcs_server

from stagecraft.common.errors import TransientError, UserError
from stagecraft.components.object_store import filesystem, leases
from stagecraft.components.object_store.leases import GcsLease, NoLeasesError, S3Lease
from stagecraft.components.object_store.location import NoBucketError
from stagecraft.trainer_module.checkpointing.lease import (
    Conflict,
    Lease,
    LeaseHeldError,
    LeaseLostError,
)

GCS = "gs://bucket/checkpoints/key"


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gcs]:
    with gcs_server() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        monkeypatch.delenv("STAGECRAFT_STORE", raising=False)
        yield server


@pytest.fixture(params=["bucket", "gcs"], ids=["s3", "gs"])
def address(request: pytest.FixtureRequest) -> str:
    """Where a lease is: in a server of S3's, or in one of Google's, where generations decide."""
    found = request.getfixturevalue(request.param)
    return f"s3://{found}/checkpoints/key" if request.param == "bucket" else GCS


def lease(address: str, name: str = "", seconds: float = 60.0) -> Lease:
    return leases.open_lease(address, name=name, seconds=seconds, grace=0.0)


@pytest.mark.slow
def test_fifty_at_once(bucket):
    """A server of S3's, and processes that share nothing else."""
    [found] = starts.at_once("store", f"s3://{bucket}/checkpoints/key", count=50)
    [winner] = found.winners
    assert len(found.refused) == 49
    assert {each["error"] for each in found.refused} == {LeaseHeldError.__name__}
    assert {each["holder"]["process"] for each in found.refused} == {winner}


@pytest.mark.full
@pytest.mark.parametrize(
    "more",
    [pytest.param({}, id="free", marks=pytest.mark.full), pytest.param({"left": 0.0}, id="over")],
)
def test_two_a_hundred_times(bucket, more):
    found = starts.at_once("store", f"s3://{bucket}/c", count=2, rounds=100, **more)
    assert [(len(each.winners), len(each.refused)) for each in found] == [(1, 1)] * 100


def test_the_second_is_told_of_the_first(address):
    first, second = lease(address, "train-first"), lease(address, "train-second")
    assert isinstance(first, GcsLease if address == GCS else S3Lease)
    first.claim()
    first.renew()
    with pytest.raises(LeaseHeldError, match=r"train-first \(process") as refused:
        second.claim()
    assert refused.value.place == address
    assert refused.value.holder == first.holder
    assert refused.value.holder.process == os.getpid()
    assert refused.value.until > time.time() + 50
    first.release()
    second.claim()


def test_whoever_was_overtaken_writes_nothing_more(address):
    first, second = lease(address, "train-first", seconds=0.0), lease(address, "train-second")
    first.claim()
    second.claim()
    for _ in range(2):
        with pytest.raises(LeaseLostError) as lost:
            first.check()
        assert lost.value.holder == second.holder
    first.release()  # is not its own any more
    second.check()
    with pytest.raises(LeaseLostError):
        second.check_held_by("train-first")
    second.check_held_by("train-second")
    with pytest.raises(LeaseHeldError, match="train-second"):
        first.claim()


def test_what_is_no_lease_is_replaced_once(address, request):
    if address == GCS:
        gcs = request.getfixturevalue("gcs")
        gcs.insert("bucket", "checkpoints/key/lease.json", b"{", None)
    else:
        filesystem.write_atomically(f"{address}/lease.json", b"{")
    found = lease(address)
    nothing, version = found.read()
    assert nothing is None and version is not None
    lease(address, "train-first").claim()
    record, _ = lease(address).read()
    assert record is not None
    with pytest.raises(Conflict):
        found.write(record, version)


def test_one_of_a_version_before(bucket):
    address = f"s3://{bucket}/key"
    old = {"until": time.time() + 60, "holder": "train-before"}
    filesystem.write_atomically(f"{address}/lease.json", json.dumps(old).encode())
    with pytest.raises(LeaseHeldError, match=r"train\-before"):
        lease(address).claim()


def test_a_store_with_conditional_writes(bucket):
    found = lease(f"s3://{bucket}/key")
    assert isinstance(found, S3Lease)
    found.check_store()
    assert filesystem.ObjectStore.glob(f"s3://{bucket}/**") == []


def test_a_store_without(old_bucket):
    found = lease(f"s3://{old_bucket}/key")
    assert isinstance(found, S3Lease)
    with pytest.raises(NoLeasesError) as error:
        found.check_store()
    assert error.value.place == f"s3://{old_bucket}/key"
    assert filesystem.ObjectStore.glob(f"s3://{old_bucket}/**") == []


def test_a_bucket_that_is_not_there(address):
    with pytest.raises(NoBucketError):
        lease(address.replace("://", "://not-")).claim()


def test_a_store_that_does_not_answer(bucket, monkeypatch):
    """For a while, the holder goes on; before others may write, it stops."""
    found = lease(f"s3://{bucket}/key", seconds=60.0)
    found.claim()
    monkeypatch.setattr(found._place.store, "call_s3", unreachable)
    with pytest.raises(TransientError):
        found.renew()
    monkeypatch.setattr(found, "_renewed", found._renewed - 40.0)
    found.check()
    monkeypatch.setattr(found, "_renewed", found._renewed - 21.0)
    with pytest.raises(LeaseLostError) as lost:
        found.check()
    assert lost.value.holder is None


def unreachable(*_: object, **__: object) -> None:
    raise OSError(113, "No route to host")


def test_an_answer_that_is_lost(address, monkeypatch):
    """The client sends the request again, and finds what it has written itself."""
    found = lease(address)
    write = found.write

    def twice(*given: object) -> str:
        write(*given)
        return write(*given)

    monkeypatch.setattr(found, "write", twice)
    found.claim()
    found.renew()
    record, version = found.read()
    assert record is not None and record.holder == found.holder and version == found._version


def test_a_folder_in_the_place_of_all_stores(folder_store):
    """A lease there is one of a volume."""
    lease("gs://bucket/key", "train-first").claim()
    with pytest.raises(LeaseHeldError, match="train-first"):
        lease("gs://bucket/key").claim()


@pytest.mark.parametrize("seconds", [None, 0.0], ids=["free", "over"])
def test_two_at_once(gcs, seconds):
    barrier = threading.Barrier(2)

    def claim(one: Lease) -> Any:
        barrier.wait(60)
        try:
            one.claim()
        except LeaseHeldError as error:
            return error
        return one.holder

    with ThreadPoolExecutor(2) as pool:
        for number in range(10):
            address = f"{GCS}-{number}"
            if seconds is not None:
                lease(address, "train-before", seconds).claim()
            both = [lease(address, "train-1"), lease(address, "train-2")]
            answers = list(pool.map(claim, both))
            [refused] = [each for each in answers if isinstance(each, LeaseHeldError)]
            assert refused.holder in answers


@pytest.mark.parametrize(("status", "kind"), [(403, UserError), (400, TransientError)])
def test_a_store_of_googles_that_refuses(gcs, status, kind):
    gcs.failures = [status]
    with pytest.raises(kind, match=GCS) as refused:
        lease(GCS).claim()
    assert type(refused.value) is kind


def test_a_store_that_fails_for_a_moment(gcs):
    """Google's client asks again."""
    gcs.failures = [503]
    one = lease(GCS)
    one.claim()
    gcs.failures = [503]
    one.renew()
    assert gcs.failures == []


def test_without_credentials_of_google(monkeypatch, tmp_path):
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("STAGECRAFT_STORE", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(UserError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        lease(GCS)
