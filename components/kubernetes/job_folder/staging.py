"""A pod of a training without the volume: brings its data from an object store, and sends its own.

TensorFlow reads neither ``s3://`` nor ``minio://``, and a training renames and appends.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import tempfile
from collections.abc import Callable, Iterator

from stagecraft.components.kubernetes.job_folder.handover import TASK
from stagecraft.components.object_store import store_lease
from stagecraft.components.object_store.folder import StoredFolder, files, is_address, patiently
from stagecraft.trainer_module.checkpointing import mirror

_STAGED = "staged://"
"""In a task: each pod's own folder."""


def portable(task: str, place: str) -> str:
    """A task that names files in a place of this process, for pods that have them elsewhere."""
    return task.replace(f'"{place}/', f'"{_STAGED}')


@contextlib.contextmanager
def staged(folder: str) -> Iterator[str]:
    """Yields the task's file, with all that it needs in folders of this pod.

    Afterwards, what the block has written of the outputs is sent back, also that of a training
    that failed: the next attempt goes on with it. Checkpoints are sent as they are made.

    Args:
        folder: of the training.

    Raises:
        UserError: the object store cannot be used.
        OSError: there is no task.
    """
    with tempfile.TemporaryDirectory(prefix="training-") as made:
        scratch = pathlib.Path(made)
        with _brought(folder, scratch) as text:
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
    """What has to pass before a checkpoint is sent: the job's step still has the lease."""
    lease = store_lease.of(checkpoints, name=job, seconds=0.0, grace=0.0)
    return lambda: patiently(lambda: lease.check_held_by(job))


@contextlib.contextmanager
def _brought(folder: str, scratch: pathlib.Path) -> Iterator[str]:
    """Yields the task."""
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
        # Without a task, whoever started this has taken what there was, and is gone.
        changed = _written(outputs) if stored.read(TASK) is not None else {}
        for path, written in changed.items():
            if before.get(path) != written:  # what is another pod's stays as that one has it
                stored.upload(path, path.relative_to(scratch).as_posix())


def _written(folder: pathlib.Path) -> dict[pathlib.Path, tuple[int, int]]:
    """Size and time of each file."""
    stats = {path: path.stat() for path in files(folder)}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}
