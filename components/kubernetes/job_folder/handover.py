"""What a Trainer's step and its training's pods hand each other, on a volume or in a store."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

from stagecraft.components.kubernetes.job_folder import shared_folder, step_lease, volume
from stagecraft.components.kubernetes.jobs.job_settings import ClusterSettings
from stagecraft.components.kubernetes.jobs.pod_settings import Volume
from stagecraft.components.object_store.folder import ADDRESSES, StoredFolder, is_address
from stagecraft.schemas.errors import UserError

if TYPE_CHECKING:
    from tfx import types

    Artifacts = dict[str, list[types.Artifact]]

TASK = "task.json"
"""In the folder of a training: what its pods do. Without it, nobody has begun, or all is done."""

_JOB = re.compile(r"train-[0-9a-f]{16}")

_log = logging.getLogger(__name__)

_INPUTS = "inputs.json"
"""In one at an address: the inputs are there, whole."""


class Handover(TypedDict):
    """Of one training."""

    folder: str
    """What its pods look into; its last part is the name of the job."""

    place: str
    """Where this process has what is in it: the same, or a folder of its own."""


def job_name(outputs: Artifacts) -> str:
    """A name that is the same for all attempts of a step, and no other's.

    The outputs' addresses hold run and step; all attempts have the same.
    """
    addresses = sorted(artifact.uri for of_key in outputs.values() for artifact in of_key)
    return f"train-{hashlib.sha256(' '.join(addresses).encode()).hexdigest()[:16]}"


def check(path: str, volumes: Sequence[Volume], setting: str) -> None:
    """Checks that a folder is where the job's pods can see it.

    Raises:
        UserError: it is in no object store, and on no volume that they have.
    """
    if is_address(path) or any(volume.is_below(path, each.path) for each in volumes):
        return
    there = ", ".join(each.path for each in volumes) or "none"
    name = "jobs" if setting == "kubeflow.job.folder" else setting.rpartition(".")[2]
    example = f"{volumes[0].path.rstrip('/') if volumes else '/mnt/training'}/{name}"
    raise UserError(
        f"{setting}: {path or 'not set'}: under parallel.launcher: kubernetes it has to be where "
        "the training's pods see it, too: on a volume of kubeflow.steps.Trainer.volumes "
        f"({there}), such as {example}, or in an object store ({', '.join(ADDRESSES)}), such as "
        f"s3://bucket/{name}"
    )


@contextlib.contextmanager
def shared(
    inputs: Artifacts, outputs: Artifacts, cluster: ClusterSettings, checkpoints: str
) -> Iterator[Handover]:
    """Has artifacts where the job's pods see them, for the time of the block.

    Inputs are copied there, once for all attempts, unless they are on a volume already. Outputs
    are copied from there to where they belong when all went well, and the folder is removed. So are
    folders of trainings that failed, and that nobody has tried again.

    Raises:
        UserError: a folder is where the pods do not see it, or cannot be written.
    """
    volumes = cluster.pod.volumes
    check(cluster.job.folder, volumes, "kubeflow.job.folder")
    check(checkpoints, volumes, "kubeflow.checkpoints")
    folder = f"{cluster.job.folder.rstrip('/')}/{job_name(outputs)}"
    _sweep(cluster.job.folder, cluster.job.ttl_seconds)
    given = {
        artifact: f"inputs/{key}-{index}"
        for key, artifacts in inputs.items()
        for index, artifact in enumerate(artifacts)
        if not any(volume.is_below(artifact.uri, each.path) for each in volumes)
    }
    made = {
        artifact: f"outputs/{key}-{index}"
        for key, artifacts in outputs.items()
        for index, artifact in enumerate(artifacts)
    }
    sources = {name: artifact.uri for artifact, name in given.items()}
    with contextlib.ExitStack() as stack:
        # First, and from now on: what has no lease is nobody's, and stays.
        stack.enter_context(step_lease.renewed(folder, cluster.job.lease_seconds))
        if is_address(folder):
            place = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            _bring(sources, place, StoredFolder(folder))
        else:
            place = pathlib.Path(folder)
            volume.bring(sources, place)
        with volume.writable(place):
            for name in made.values():
                (place / name).mkdir(parents=True, exist_ok=True)
        with _at({artifact: place / name for artifact, name in (given | made).items()}):
            yield {"folder": folder, "place": str(place)}
        for artifact, name in made.items():
            shutil.copytree(place / name, artifact.uri, dirs_exist_ok=True)
    # The task goes first: an attempt that finds a task also finds its results.
    done = shared_folder.at(folder)
    done.remove(TASK)
    done.clear(last=step_lease.NAME)


def take(handover: Handover) -> None:
    """Has what the pods have made in this process's place; TFX looks there for a model."""
    if is_address(handover["folder"]):
        stored, place = StoredFolder(handover["folder"]), pathlib.Path(handover["place"])
        stored.download_all("outputs", place / "outputs")


def _bring(sources: dict[str, str], place: pathlib.Path, stored: StoredFolder) -> None:
    """Has folders in a place of this process, and in the store."""
    for name, source in sources.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).symlink_to(source, target_is_directory=True)
    if stored.read(_INPUTS) is None:
        for name in sources:
            stored.upload_all(place / name, name)
        stored.write(_INPUTS, b"{}")


def _sweep(folder: str, seconds: float) -> None:
    """Removes what trainings have left whose lease was over so many seconds ago."""
    for name in shared_folder.at(folder).having(step_lease.NAME):
        if not _JOB.fullmatch(name):
            continue
        left = f"{folder.rstrip('/')}/{name}"
        # Another one is removing it, or it is for another day.
        with contextlib.suppress(OSError, ValueError, UserError):
            if step_lease.left(left) > -seconds:
                continue
            _log.info("%s: removed: it was left by a training that failed", left)
            shared_folder.at(left).clear(last=step_lease.NAME)


@contextlib.contextmanager
def _at(places: dict[types.Artifact, pathlib.Path]) -> Iterator[None]:
    """Has artifacts in other places."""
    uris = {artifact: artifact.uri for artifact in places}
    try:
        for artifact, place in places.items():
            artifact.uri = str(place)
        yield
    finally:
        for artifact, uri in uris.items():
            artifact.uri = uri
