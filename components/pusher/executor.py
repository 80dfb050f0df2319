"""TFX's Pusher, with atomic versions."""

from __future__ import annotations

import json
import logging
import posixpath
from typing import Any

from tfx import types
from tfx.components.pusher import executor
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, json_utils, proto_utils

from stagecraft.common.errors import UserError
from stagecraft.components.metadata import manifest
from stagecraft.components.pusher import already, owner, retention, warmup
from stagecraft.components.pusher.versions import check_copy, explained, write_version

Artifacts = dict[str, list[types.Artifact]]

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
            removed = retention.prune(folder, config[KEEP], pushed_by)
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
