"""Stages data of a pod without a volume: downloads inputs from a store, and uploads outputs.

TensorFlow reads neither ``s3://`` nor ``minio://``, and a training renames files and appends.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import tempfile
from collections.abc import Callable, Iterator

from stagecraft.components.kubernetes.job_folder.exchange import TASK
from stagecraft.components.object_store.folder import (
    StoredFolder,
    files,
    is_address,
    open_lease,
    patiently,
)
from stagecraft.trainer_module.checkpointing import mirror

_STAGED = "staged://"  # prefix of paths in a task: the pod's scratch folder


def portable(task: str, local: str) -> str:
    """Makes paths in the local job folder relative to each pod's scratch folder."""
    return task.replace(f'"{local}/', f'"{_STAGED}')


@contextlib.contextmanager
def staged(folder: str) -> Iterator[str]:
    """Yields the task's file, with its data in folders of this pod.

    Afterwards, uploads the outputs, also those of a failed training, for the next attempt.
    Checkpoints are uploaded when they are written.
    """
    with tempfile.TemporaryDirectory(prefix="training-") as temporary:
        scratch = pathlib.Path(temporary)
        with _downloaded(folder, scratch) as text:
            task = json.loads(text)
            checkpoints = task["fn_args"]["working_dir"]
            if is_address(checkpoints):
                own = scratch / "checkpoints"
                check = _check(checkpoints, folder.rpartition("/")[2])
                mirror.use(own, StoredFolder(checkpoints), check)
                task["fn_args"]["working_dir"] = str(own)
            (scratch / TASK).write_text(json.dumps(task))
            yield str(scratch / TASK)


def _check(checkpoints: str, job: str) -> Callable[[], None]:
    """A check before each upload of a checkpoint: the job's step still holds the lease."""
    lease = open_lease(checkpoints, name=job, seconds=0.0, grace=0.0)
    return lambda: patiently(lambda: lease.check_held_by(job))


@contextlib.contextmanager
def _downloaded(folder: str, scratch: pathlib.Path) -> Iterator[str]:
    if not is_address(folder):
        yield pathlib.Path(folder, TASK).read_text()
        return
    stored = StoredFolder(folder)
    task = stored.read(TASK)
    if task is None:
        raise FileNotFoundError(2, "No such object", f"{folder}/{TASK}")
    outputs = scratch / "outputs"
    stored.download_all("inputs", scratch / "inputs")
    stored.download_all("outputs", outputs)
    before = _written(outputs)
    try:
        yield task.decode().replace(_STAGED, f"{scratch}/")
    finally:
        # Without a task, the step has fetched the outputs and has ended.
        changed = _written(outputs) if stored.read(TASK) is not None else {}
        for path, written in changed.items():
            if before.get(path) != written:  # other pods upload their own files
                stored.upload(path, path.relative_to(scratch).as_posix())


def _written(folder: pathlib.Path) -> dict[pathlib.Path, tuple[int, int]]:
    stats = {path: path.stat() for path in files(folder)}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}
