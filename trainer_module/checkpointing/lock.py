"""One training at a time on a folder of checkpoints: two would take each other's for their own.

The kernel frees the lock when the process that holds it ends, however it ends: a
training that was killed keeps none out.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib
import socket
from collections.abc import Iterator

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.atomic_folder import disk_errors

FILE_NAME = ".lock"
"""Stays when it is free: whoever removed it could remove it under one who just took it."""

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(root: pathlib.Path) -> Iterator[None]:
    """Holds ``root/.lock`` during the block; ``root`` is made where it is not there.

    Raises:
        UserError: another training holds it, or ``root`` cannot be written.
    """
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        file = (root / FILE_NAME).open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UserError(
                f"{root}: {holder} is training on these checkpoints, and there can be only one; "
                "wait for its end or stop it, or give this training a train.resume_id of its own"
            ) from None
        except OSError as error:  # some network file systems have no locks
            _log.warning(
                "%s: cannot be locked (%s); see to it that only one training uses it",
                root,
                error.strerror,
            )
        with disk_errors(root):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                file.truncate(0)
