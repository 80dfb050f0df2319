"""The leases that a training's step holds while its job writes checkpoints.

Each keeps off trainings that the other one does not:

* The ``Lease`` object of the cluster keeps the steps of one namespace off each other's checkpoints,
  wherever the checkpoints are. It needs no store, and refuses a step before it makes a job.
* The lease beside the checkpoints keeps everybody off. In a store the step holds it, and the
  chief's pod reads it before it sends a checkpoint. On a volume the chief's pod holds it
  (:mod:`stagecraft.trainer_module.checkpointing.lock`).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.jobs.pods import GRACE_SECONDS
from stagecraft.components.kubernetes.launch.lease_object import ClusterLease
from stagecraft.components.object_store import store_lease
from stagecraft.components.object_store.folder import is_address, patiently
from stagecraft.components.object_store.store_lease import NoLeasesError, S3Lease
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpointing.lease import Lease

_log = logging.getLogger(__name__)


def of(client: Any, namespace: str, folder: str, *, name: str, seconds: float) -> list[Lease]:
    """The leases that a step needs; nothing is claimed yet.

    Args:
        client: connection to the cluster.
        namespace: of the job.
        folder: path or address of the checkpoints.
        name: of the job, which all attempts of the step have: one takes over from the one before.
        seconds: how long a lease runs that nobody renews.

    Raises:
        UserError: the object store cannot be used.
    """
    pods_save: dict[str, Any] = {"name": name, "seconds": seconds, "grace": GRACE_SECONDS}
    found: list[Lease] = [ClusterLease(client, namespace, folder, **pods_save)]
    if is_address(folder):
        try:
            found.append(stored(folder, **pods_save))
        except NoLeasesError as error:
            _log.warning(
                "%s. Only the Lease object of namespace %s keeps other trainings off: see to it "
                "that those of other namespaces and clusters have folders of their own.",
                error,
                namespace,
            )
    return found


def stored(address: str, *, name: str, seconds: float, grace: float) -> Lease:
    """The lease on a folder of a store that has conditional writes.

    Raises:
        NoLeasesError: it has none.
        UserError: the object store cannot be used.
    """
    lease = store_lease.of(address, name=name, seconds=seconds, grace=grace)
    if isinstance(lease, S3Lease):
        patiently(lease.check_store)
    return lease


@contextlib.contextmanager
def held(leases: list[Lease], is_over: Callable[[], bool]) -> Iterator[None]:
    """Holds all of them during the block.

    Args:
        leases: claimed one after the other.
        is_over: says after a failure whether the pods have ended, or are about to. If not, the
            leases stay until they are over.

    Raises:
        LeaseHeldError: another training has one of them.
        UserError: the cluster, or the store, cannot be used.
    """
    _claim(leases)
    try:
        with contextlib.ExitStack() as stack:
            for lease in leases:
                stack.enter_context(lease.renewed())
            yield
    except BaseException:
        if is_over():
            _release(leases, GRACE_SECONDS)  # the pods save first
        raise
    _release(leases, 0.0)


def check(leases: list[Lease]) -> None:
    """Passes while all of them are held.

    Raises:
        LeaseLostError: one is not.
    """
    for lease in leases:
        lease.check()


def _claim(leases: list[Lease]) -> None:
    """All of them or none."""
    for index, lease in enumerate(leases):
        try:
            connection.patiently(functools.partial(patiently, lease.claim))
        except BaseException:
            _release(leases[:index], 0.0)
            raise


def _release(leases: list[Lease], after: float) -> None:
    for lease in leases:
        with contextlib.suppress(OSError, UserError):
            lease.release(after)
