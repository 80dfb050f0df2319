"""Files that the Trainer's step and the job's pods exchange, on a volume or in a store.

The step uses :func:`shared` and :func:`fetch_outputs`, each pod :func:`staged`. In a store, both
work on copies: TensorFlow reads neither ``s3://`` nor ``minio://``, and a training renames files
and appends.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.kubernetes.job_folder import heartbeat
from stagecraft.components.kubernetes.jobs.cluster_job import JobRefusedError
from stagecraft.components.kubernetes.jobs.settings import ClusterSettings, Volume
from stagecraft.components.object_store.folder import (
    StoredFolder,
    files,
    is_address,
    open_folder,
    patiently,
    writable,
)
from stagecraft.components.object_store.leases import open_lease
from stagecraft.trainer_module.checkpointing import mirror
from stagecraft.trainer_module.processes.training_task import TrainingTask

if TYPE_CHECKING:
    from tfx import types

    Artifacts = dict[str, list[types.Artifact]]

TASK = "task.json"
"""File of the job folder: what the pods train. Without it, the job has not started, or is done."""

_JOB = re.compile(r"train-[0-9a-f]{16}")

_log = logging.getLogger(__name__)
_INPUTS = "inputs.json"  # in a store: all inputs are complete
_STAGED = "staged://"  # prefix of paths in a task: the pod's scratch folder


class JobFolder(TypedDict):
    """The folder of one job."""

    folder: str  # path or address that the pods read; its last part is the name of the job
    local: str  # path in this process: the same folder, or a local copy of it


class UnsharedFolderError(SettingError):
    """A folder that the job's pods cannot reach."""


def check(path: str, volumes: Sequence[Volume], setting: str) -> None:
    """Checks that the job's pods reach a folder."""
    if is_address(path) or any(_is_below(path, each.path) for each in volumes):
        return
    name = "jobs" if setting == "kubeflow.job.folder" else setting.rpartition(".")[2]
    example = f"{volumes[0].path.rstrip('/') if volumes else '/mnt/training'}/{name}"
    if path.startswith("/") and not volumes:
        place = "kubeflow.steps.Trainer.volumes to mount a volume there"
    else:
        place = f"a folder on a volume (kubeflow.steps.Trainer.volumes), such as {example}"
    needs = "parallel.launcher: kubernetes needs a folder that the job's pods share"
    raise UnsharedFolderError(
        setting,
        path,
        f"is not on a volume of the Trainer, and {needs}" if path else f"but {needs}",
        f"{place}, or the URI of an object store, such as s3://bucket/{name}",
        shown=path or "empty,",
    )


@contextlib.contextmanager
def shared(
    inputs: Artifacts, outputs: Artifacts, cluster: ClusterSettings, checkpoints: str
) -> Iterator[JobFolder]:
    """Shares artifacts with the job's pods during the block.

    Copies inputs into the job folder once for all attempts, unless they are on a volume. After
    success, copies outputs to their URIs, and removes the folder; also if the job was refused. Also
    removes folders of failed jobs that no attempt has used for ``kubeflow.job.ttl_seconds``.
    """
    volumes = cluster.pod.volumes
    check(cluster.job.folder, volumes, "kubeflow.job.folder")
    check(checkpoints, volumes, "kubeflow.checkpoints")
    # All attempts of a step share this name. It is unique: URIs contain the run and the step.
    uris = " ".join(sorted(each.uri for artifacts in outputs.values() for each in artifacts))
    name = f"train-{hashlib.sha256(uris.encode()).hexdigest()[:16]}"
    folder = f"{cluster.job.folder.rstrip('/')}/{name}"
    _sweep(cluster.job.folder, cluster.job.ttl_seconds)
    input_names = {
        artifact: f"inputs/{key}-{index}"
        for key, artifacts in inputs.items()
        for index, artifact in enumerate(artifacts)
        if not any(_is_below(artifact.uri, each.path) for each in volumes)
    }
    output_names = {
        artifact: f"outputs/{key}-{index}"
        for key, artifacts in outputs.items()
        for index, artifact in enumerate(artifacts)
    }
    sources = {name: artifact.uri for artifact, name in input_names.items()}
    done = open_folder(folder)
    try:
        with contextlib.ExitStack() as stack:
            # First: _sweep keeps a folder without a heartbeat.
            stack.enter_context(heartbeat.renewed(folder, cluster.job.lease_seconds))
            if is_address(folder):
                local = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
                _upload(sources, local, StoredFolder(folder))
            else:
                local = pathlib.Path(folder)
                _copy_once(sources, local)
            with writable(local):
                for name in output_names.values():
                    (local / name).mkdir(parents=True, exist_ok=True)
            names = input_names | output_names
            with _moved({artifact: local / name for artifact, name in names.items()}):
                yield {"folder": folder, "local": str(local)}
            for artifact, name in output_names.items():
                shutil.copytree(local / name, artifact.uri, dirs_exist_ok=True)
    except JobRefusedError:
        done.clear(last=heartbeat.NAME)
        raise
    # Removes the task first: an attempt that finds a task also finds its results.
    done.remove(TASK)
    done.clear(last=heartbeat.NAME)


def fetch_outputs(job_folder: JobFolder) -> None:
    """Downloads the pods' outputs into the local folder, where TFX looks for a model."""
    if is_address(job_folder["folder"]):
        outputs = pathlib.Path(job_folder["local"], "outputs")
        StoredFolder(job_folder["folder"]).download_all("outputs", outputs)


def _is_below(path: str, folder: str) -> bool:
    """Whether a path is the folder, or below it."""
    return pathlib.PurePath(os.path.normpath(path)).is_relative_to(folder)


def _copy_once(sources: Mapping[str, str], folder: pathlib.Path) -> None:
    """Copies sources, by name in ``folder``, to a volume, unless an earlier attempt has done so."""
    with writable(folder):
        for name, source in sources.items():
            target = folder / name
            if not target.exists():
                unfinished = target.with_name(f".{target.name}.{os.getpid()}")
                shutil.rmtree(unfinished, ignore_errors=True)
                shutil.copytree(source, unfinished)
                unfinished.rename(target)


def _upload(sources: dict[str, str], local: pathlib.Path, stored: StoredFolder) -> None:
    for name, source in sources.items():
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).symlink_to(source, target_is_directory=True)
    if stored.read(_INPUTS) is None:
        for name in sources:
            stored.upload_all(local / name, name)
        stored.write(_INPUTS, b"{}")


def _sweep(folder: str, seconds: float) -> None:
    for name in open_folder(folder).folders_with(heartbeat.NAME):
        if not _JOB.fullmatch(name):
            continue
        abandoned = f"{folder.rstrip('/')}/{name}"
        # Another process may remove it now; a later sweep tries again.
        with contextlib.suppress(OSError, ValueError, UserError):
            if heartbeat.seconds_left(abandoned) > -seconds:
                continue
            _log.info("%s: removing the folder of a failed job", abandoned)
            open_folder(abandoned).clear(last=heartbeat.NAME)


@contextlib.contextmanager
def _moved(folders: dict[types.Artifact, pathlib.Path]) -> Iterator[None]:
    uris = {artifact: artifact.uri for artifact in folders}
    try:
        for artifact, path in folders.items():
            artifact.uri = str(path)
        yield
    finally:
        for artifact, uri in uris.items():
            artifact.uri = uri


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
            task = TrainingTask.parsed(text)
            checkpoints = task.arguments.working_dir
            if is_address(checkpoints):
                own = scratch / "checkpoints"
                check = _check_lease(checkpoints, folder.rpartition("/")[2])
                mirror.use(own, StoredFolder(checkpoints), check)
                task = task.with_checkpoints(str(own))
            (scratch / TASK).write_text(task.line())
            yield str(scratch / TASK)


def _check_lease(checkpoints: str, job: str) -> Callable[[], None]:
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
