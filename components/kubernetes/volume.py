"""What a Trainer's step and the pods of its training hand each other, on a volume of both."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stagecraft.components.kubernetes.pod_settings import Volume
from stagecraft.schemas.errors import UserError

if TYPE_CHECKING:
    from tfx import types

    Artifacts = dict[str, list[types.Artifact]]


def job_name(outputs: Artifacts) -> str:
    """A name that is the same for all attempts of a step, and no other's.

    The outputs' addresses hold run and step; all attempts have the same.
    """
    addresses = sorted(artifact.uri for of_key in outputs.values() for artifact in of_key)
    return f"train-{hashlib.sha256(' '.join(addresses).encode()).hexdigest()[:16]}"


def check(path: str, volumes: Sequence[Volume], setting: str) -> None:
    """Checks that a folder is where the job's pods can see it.

    Raises:
        UserError: it is on no volume that they have.
    """
    if not any(is_below(path, volume.path) for volume in volumes):
        there = ", ".join(volume.path for volume in volumes) or "none"
        example = f"{volumes[0].path if volumes else '/mnt/training'}/{setting.rpartition('.')[2]}"
        raise UserError(
            f"{setting}: {path or 'not set'}: under parallel.launcher: kubernetes it has to be on "
            "a volume, which the training's pods have, too: one of kubeflow.steps.Trainer.volumes "
            f"({there}); such as {example}"
        )


def is_below(path: str, folder: str) -> bool:
    """Whether a path is in a folder, or it."""
    return pathlib.PurePath(path).is_relative_to(folder)


@contextlib.contextmanager
def shared(
    inputs: Artifacts, outputs: Artifacts, folder: pathlib.Path, volumes: Sequence[Volume]
) -> Iterator[None]:
    """Has artifacts in a folder on a volume, for the time of the block.

    Inputs are copied there, once for all attempts, unless they are on a volume already. Outputs
    are copied from there to where they belong, when all went well.

    Raises:
        UserError: the folder cannot be written.
    """
    with writable(folder):
        places = {
            artifact: _copied(artifact.uri, folder / "inputs" / f"{key}-{index}")
            for key, artifacts in inputs.items()
            for index, artifact in enumerate(artifacts)
            if not any(is_below(artifact.uri, volume.path) for volume in volumes)
        }
        results = {
            artifact: folder / "outputs" / f"{key}-{index}"
            for key, artifacts in outputs.items()
            for index, artifact in enumerate(artifacts)
        }
        for place in results.values():
            place.mkdir(parents=True, exist_ok=True)
    uris = {artifact: artifact.uri for artifact in (*places, *results)}
    try:
        for artifact, place in (places | results).items():
            artifact.uri = str(place)
        yield
    finally:
        for artifact, uri in uris.items():
            artifact.uri = uri
    for artifact, place in results.items():
        shutil.copytree(place, artifact.uri, dirs_exist_ok=True)


@contextlib.contextmanager
def writable(folder: pathlib.Path) -> Iterator[None]:
    """Says in the block's place what is wrong with a folder.

    Raises:
        UserError: it cannot be written.
    """
    try:
        yield
    except OSError as error:  # a copy's, of several, has neither
        why = error.strerror or " ".join(str(error).split())
        raise UserError(
            f"kubeflow.job.folder: {error.filename or folder}: cannot be written ({why}); the "
            "volume has to have space, and to let the step's user write, which is 1000 of group 0"
        ) from error


def remove(folder: pathlib.Path) -> None:
    """Removes what is not needed any more; what cannot be stays."""
    shutil.rmtree(folder, ignore_errors=True)


def _copied(uri: str, place: pathlib.Path) -> pathlib.Path:
    """A whole copy, or one that an attempt before has made."""
    if not place.exists():
        unfinished = place.with_name(f".{place.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(uri, unfinished)
        unfinished.rename(place)
    return place
