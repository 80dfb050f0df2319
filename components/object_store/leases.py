"""The lease on a folder of an object store."""

from __future__ import annotations

import os
import pathlib

from stagecraft.components.object_store.endpoint import STORE
from stagecraft.components.object_store.lease_s3 import S3Lease
from stagecraft.components.object_store.location import locate
from stagecraft.trainer_module.checkpointing.lease import Lease
from stagecraft.trainer_module.checkpointing.volume_lease import VolumeLease


def open_lease(address: str, *, name: str, seconds: float, grace: float) -> Lease:
    """Opens the lease on a folder of a store; claims nothing.

    Raises:
        UserError: the store cannot be used.
    """
    if os.environ.get(STORE):
        root = pathlib.Path(locate(address).path)
        return VolumeLease(root, name=name, seconds=seconds, grace=grace)
    if address.startswith("gs://"):
        from stagecraft.components.object_store.lease_gcs import GcsLease

        return GcsLease(address, name=name, seconds=seconds, grace=grace)
    return S3Lease(address, name=name, seconds=seconds, grace=grace)
