"""The leases that the Trainer's step holds while its job writes checkpoints.

* The ``Lease`` object of coordination.k8s.io excludes other steps of the namespace, wherever the
  checkpoints are. It needs no store, and refuses a step before the step creates a job. If the
  ``resourceVersion`` has changed since the read, the API server answers 409
  (https://kubernetes.io/docs/concepts/architecture/leases/).
* The lease in the folder of checkpoints excludes all other trainings. In a store the step holds it,
  and the chief's pod reads it before each upload. On a volume the chief's pod holds it
  (:mod:`stagecraft.trainer_module.checkpointing.lock`).
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.api.connection import Refused, parse_time
from stagecraft.components.kubernetes.api.objects import Json, Objects
from stagecraft.components.kubernetes.jobs.cluster_job import JobRefusedError
from stagecraft.components.kubernetes.jobs.pods import GRACE_SECONDS
from stagecraft.components.object_store.folder import is_address, patiently
from stagecraft.components.object_store.leases import NoLeasesError, S3Lease, open_lease
from stagecraft.trainer_module.checkpointing.lease import Conflict, Holder, Lease, Record

_log = logging.getLogger(__name__)
RECORD = "stagecraft.dev/holder"  # Annotation: the complete record; ``spec`` has Kubernetes' fields
_FOLDER = "stagecraft.dev/checkpoints"


class ClusterLease(Lease):
    """A :class:`Lease` on a folder of checkpoints, in one namespace."""

    def __init__(
        self, client: Any, namespace: str, folder: str, *, name: str, seconds: float, grace: float
    ):
        super().__init__(folder, name=name, seconds=seconds, grace=grace)
        self._objects = Objects(client, namespace)
        self._body: Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": object_name(folder),
                "namespace": namespace,
                "labels": {"app.kubernetes.io/part-of": "stagecraft"},
                "annotations": {_FOLDER: folder},
            },
        }

    def read(self) -> tuple[Record | None, str | None]:
        """See :class:`Lease`."""
        found = self._objects.get(self._body)
        if found is None:
            return None, None
        return _record(found), _version(found)

    def write(self, record: Record, version: str | None) -> str:
        """See :class:`Lease`."""
        metadata = self._body["metadata"]
        annotations = metadata["annotations"] | {RECORD: record.json().decode()}
        body = self._body | {
            "metadata": metadata | {"annotations": annotations},
            "spec": self._spec(record),
        }
        try:
            if version is None:
                written = self._objects.create(body)
            else:
                uid, _, resource_version = version.partition("/")
                body["metadata"] |= {"uid": uid, "resourceVersion": resource_version}
                written = self._objects.replace(body)
        except Refused as error:
            # 404 of a version: another process deleted the object.
            if error.status == 409 or (version is not None and error.status == 404):
                raise Conflict from None
            raise
        return _version(written)

    def _end(self, after: float) -> None:
        if after > 0:
            super()._end(after)
        else:  # no object stays behind
            uid, _, resource_version = (self._version or "").partition("/")
            self._objects.delete(self._body, uid, resource_version)

    def _spec(self, record: Record) -> Json:
        now = datetime.datetime.now(datetime.timezone.utc)
        since = datetime.datetime.fromtimestamp(record.holder.since, datetime.timezone.utc)
        return {
            "holderIdentity": str(record.holder),
            # A positive number, as the API server demands.
            "leaseDurationSeconds": max(1, math.ceil(record.until - now.timestamp())),
            "acquireTime": _micro(since),
            "renewTime": _micro(now),
        }


def object_name(folder: str) -> str:
    """Name of the lease on a folder of checkpoints."""
    return f"stagecraft-{hashlib.sha256(folder.rstrip('/').encode()).hexdigest()[:16]}"


def _version(found: Json) -> str:
    """The version for a PUT; without the uid in it, a PUT would create a missing Lease."""
    return f"{found['metadata']['uid']}/{found['metadata']['resourceVersion']}"


def _record(found: Json) -> Record | None:
    """The record; None: nobody holds the lease."""
    try:
        return Record.parsed(found["metadata"]["annotations"][RECORD])
    except (KeyError, ValueError):
        pass
    spec = found.get("spec") or {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return None
    renewed = parse_time(spec["renewTime"]).timestamp()
    holder = Holder(name=spec["holderIdentity"])
    return Record(holder=holder, until=renewed + spec.get("leaseDurationSeconds", 0))


def _micro(time: datetime.datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def leases_for(
    client: Any, namespace: str, folder: str, *, name: str, seconds: float
) -> list[Lease]:
    """The leases that a step needs; claims none.

    Args:
        folder: path or address of the checkpoints.
        name: of the job, which is the same for all attempts of the step.
        seconds: term of a lease without renewal.
    """
    terms: dict[str, Any] = {"name": name, "seconds": seconds, "grace": GRACE_SECONDS}
    result: list[Lease] = [ClusterLease(client, namespace, folder, **terms)]
    if is_address(folder):
        lease = open_lease(folder, **terms)
        try:
            if isinstance(lease, S3Lease):
                patiently(lease.check_store)
            result.append(lease)
        except NoLeasesError as error:
            _log.warning(
                "%s. Only the Lease object of namespace %s prevents concurrent training runs. Use "
                "a different folder for each namespace and cluster.",
                error,
                namespace,
            )
    return result


@contextlib.contextmanager
def held(leases: list[Lease], is_over: Callable[[], bool]) -> Iterator[None]:
    """Holds all of them during the block.

    Args:
        is_over: whether the pods have ended, or end now. Otherwise a failure leaves the leases
            until they expire.
    """
    for index, lease in enumerate(leases):  # all, or none
        try:
            connection.patiently(functools.partial(patiently, lease.claim))
        except BaseException:
            _release(leases[:index], 0.0)
            raise
    try:
        with contextlib.ExitStack() as stack:
            for lease in leases:
                stack.enter_context(lease.renewed())
            yield
    except JobRefusedError:  # there are no pods
        _release(leases, 0.0)
        raise
    except BaseException:
        if is_over():
            _release(leases, GRACE_SECONDS)  # the pods save first
        raise
    _release(leases, 0.0)


def _release(leases: list[Lease], after: float) -> None:
    for lease in leases:
        with contextlib.suppress(OSError, UserError):
            lease.release(after)
