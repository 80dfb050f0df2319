"""The leases that the Trainer's step holds while its job writes checkpoints.

* The ``Lease`` object of the cluster excludes other steps of the namespace, wherever the
  checkpoints are. It needs no store, and refuses a step before the step creates a job.
* The lease in the folder of checkpoints excludes all other trainings. In a store the step holds it,
  and the chief's pod reads it before each upload. On a volume the chief's pod holds it
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
from stagecraft.components.kubernetes.launch.cluster_lease import ClusterLease
from stagecraft.components.object_store.folder import is_address, patiently
from stagecraft.components.object_store.lease_s3 import NoLeasesError, S3Lease
from stagecraft.components.object_store.leases import open_lease
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.checkpointing.lease import Lease

_log = logging.getLogger(__name__)


def leases_for(
    client: Any, namespace: str, folder: str, *, name: str, seconds: float
) -> list[Lease]:
    """The leases that a step needs; claims none.

    Args:
        folder: path or address of the checkpoints.
        name: of the job, which is the same for all attempts of the step.
        seconds: term of a lease without renewal.

    Raises:
        UserError: the object store cannot be used.
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
                "%s. Only the Lease object of namespace %s keeps other training runs out. Use a "
                "different folder for each namespace and cluster.",
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

    Raises:
        LeaseHeldError: another training has a lease.
        UserError: the cluster or the store cannot be used.
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
    except BaseException:
        if is_over():
            _release(leases, GRACE_SECONDS)  # the pods save first
        raise
    _release(leases, 0.0)


def _release(leases: list[Lease], after: float) -> None:
    for lease in leases:
        with contextlib.suppress(OSError, UserError):
            lease.release(after)
