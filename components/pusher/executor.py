"""TFX's Pusher, with atomic versions, of which it keeps a number."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import posixpath
import uuid
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tfx import types
from tfx.components.pusher import executor
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, json_utils, proto_utils

from stagecraft.common.errors import UserError
from stagecraft.components.interface import Artifacts
from stagecraft.components.metadata import manifest
from stagecraft.components.object_store import filesystem
from stagecraft.components.pusher import already, owner, rollback, versions, warmup
from stagecraft.components.pusher.versions import check_copy, explained, write_version

EXAMPLES = standard_component_specs.EXAMPLES_KEY

KEEP, WARMUP = "keep", "warmup"
"""Keys of ``custom_config``: a number of versions; ``{"examples": 5, "split": "eval"}``."""

REMOVED = "removed_versions"
"""Property of a PushedModel."""

_MODELS = (standard_component_specs.MODEL_KEY, standard_component_specs.INFRA_BLESSING_KEY)

_log = logging.getLogger(__name__)


class Executor(executor.Executor):
    """See the module."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Writes the model as a new version, if it is blessed and not the newest version already.

        The output gets a copy of the model, and the custom properties ``pushed``,
        ``pushed_destination`` and ``pushed_version``. If the newest version already is the model,
        these name it, and ``already_pushed`` is 1. ``removed_versions`` is a JSON list, if the
        Pusher keeps a number of versions.

        Raises:
            DamagedArtifactError: the model is not the one that the Trainer wrote.
            DamagedCopyError: a copy of the model differs from it.
            ForeignVersionError: the newest version is of another pipeline than ``pushed_by`` in
                ``custom_config``.
            UserError: the model is missing, or cannot be written.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        pushed = artifact_utils.get_single_instance(
            output_dict[standard_component_specs.PUSHED_MODEL_KEY]
        )
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed)
            return
        manifest.check({key: each for key, each in input_dict.items() if key in _MODELS})
        model = self.GetModelPath(input_dict)
        files = manifest.describe(model)
        folder = _folder(exec_properties[standard_component_specs.PUSH_DESTINATION_KEY])
        text = exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY)
        config = (json_utils.loads(text) if text else None) or {}
        pushed_by: owner.Owner | None = config.get(owner.PUSHED_BY)
        if pushed_by is not None:
            with explained(folder):
                owner.check(folder, pushed_by)
        # Copy first: once the version exists, nothing can fail any more.
        io_utils.copy_dir(model, pushed.uri)
        check_copy(pushed.uri, files)
        existing = already.find(model, folder)
        if existing:
            version = existing
            pushed.set_int_custom_property(already.ALREADY, 1)
            _log.info("%s: already pushed as version %d", model, version.number)
        else:
            more = _warmup(model, input_dict.get(EXAMPLES), config.get(WARMUP))
            version = write_version(model, folder, pushed_by, files, more)
        self._MarkPushed(pushed, version.path, str(version.number))
        if config.get(KEEP):
            removed = prune(folder, config[KEEP], pushed_by)
            pushed.set_string_custom_property(REMOVED, json.dumps(removed))
            _log.info("%s: removed versions: %s", folder, removed)


def _warmup(
    model: str, examples: list[types.Artifact] | None, settings: dict[str, Any] | None
) -> dict[str, bytes]:
    """The file of warm-up requests; none if the model has one, or if there is no example."""
    if not settings or not examples or fileio.exists(posixpath.join(model, warmup.FILE)):
        return {}
    found = warmup.records(examples[0], settings["split"], settings["examples"])
    return {warmup.FILE: warmup.requests(model, found)} if found else {}


def _folder(push_destination: str) -> str:
    destination = pusher_pb2.PushDestination()
    proto_utils.json_to_proto(push_destination, destination)
    if not destination.filesystem.base_directory:
        raise UserError(
            f"push_destination: {push_destination} is not a file system. The Pusher supports no "
            "other destination. Set filesystem.base_directory.",
            setting="push_destination",
            value=push_destination,
            suggestion="filesystem.base_directory",
        )
    return str(destination.filesystem.base_directory)


def prune(folder: str, keep: int, pushed_by: owner.Owner | None) -> list[int]:
    """Removes all but the newest versions that a pipeline pushed; returns the removed ones.

    These stay, although they may not be among the newest: the model that a new one is compared
    with, which is the last one that a run pushed before the newest; and each version that a user
    rolled back to. Versions of other pipelines and programs stay, too, and do not count.

    A version disappears at once: on a disk by a rename, in an object store by its
    ``saved_model.pb``. One that cannot be removed stays, with a warning in the log.

    Args:
        folder: of versions: a path, or an address of an object store.
        keep: number of versions, at least 1.
        pushed_by: the pipeline, as :func:`versions.write_version` writes it.
    """
    own = [
        number
        for number in versions.numbers(folder)
        if _pushed_by(posixpath.join(folder, str(number)), pushed_by)
    ]
    # The last two that runs pushed: the newest model, and the one that it was compared with.
    trained = [number for number in own if rollback.of(folder, number) is None]
    staying = {*own[:keep], *trained[:2], *(set(own) - set(trained))}
    removed = []
    for number in sorted(set(own) - staying):
        try:
            _remove_version(folder, number)
        except (OSError, tf.errors.OpError) as error:
            _log.warning("%s: version %d cannot be removed: %s", folder, number, error)
        else:
            removed.append(number)
    return removed


def _pushed_by(version: str, pushed_by: owner.Owner | None) -> bool:
    if filesystem.read(posixpath.join(version, manifest.FILE)) is None:
        return False
    text = filesystem.read(posixpath.join(version, owner.FILE))
    try:
        found = None if text is None else json.loads(text)
    except ValueError:
        return False
    known: Mapping[str, str] | None = None if pushed_by is None else dict(pushed_by)
    return bool(found == known)


def _remove_version(folder: str, number: int) -> None:
    version = posixpath.join(folder, str(number))
    if "://" not in folder:
        # A name that the Pusher removes later, if this process dies.
        aside = os.path.join(folder, versions.TEMPORARY + uuid.uuid4().hex)
        os.rename(version, aside)
        fileio.rmtree(aside)
        return
    for name in versions.main_files(version):
        fileio.remove(posixpath.join(version, name))
    with contextlib.suppress(NotADirectoryError):  # another push removed the rest
        fileio.rmtree(version)
