"""TFX's Pusher, with a version that is there whole or not at all."""

from __future__ import annotations

import logging
from typing import Any

from tfx import types
from tfx.components.pusher import executor
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, proto_utils

from stagecraft.components.pusher import already
from stagecraft.components.pusher.versions import write_version
from stagecraft.schemas.errors import UserError

_log = logging.getLogger(__name__)


class Executor(executor.Executor):
    """See the module."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes the model as a new version, if it is blessed and the newest version is another.

        Args:
            input_dict: ``model``, ``model_blessing`` and ``infra_blessing``, as for TFX's executor.
            output_dict: ``pushed_model``. It gets a copy of the model, and the custom properties
                ``pushed``, ``pushed_destination`` and ``pushed_version``; where the newest version
                holds the model already, those of that one, and ``already_pushed``.
            exec_properties: ``push_destination``, a PushDestination in JSON.

        Raises:
            UserError: the version cannot be written, or the destination is of another kind.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        pushed = artifact_utils.get_single_instance(
            output_dict[standard_component_specs.PUSHED_MODEL_KEY]
        )
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed)
            return
        model = self.GetModelPath(input_dict)
        folder = _folder(exec_properties[standard_component_specs.PUSH_DESTINATION_KEY])
        # The copy comes first: nothing can fail any more when the version is there.
        io_utils.copy_dir(model, pushed.uri)
        there = already.find(model, folder)
        version = there or write_version(model, folder)
        self._MarkPushed(pushed, version.path, str(version.number))
        if there:
            pushed.set_int_custom_property(already.ALREADY, 1)
            _log.info("%s: already pushed as version %d", model, version.number)


def _folder(push_destination: str) -> str:
    """The folder of versions that a PushDestination names; its versioning has one meaning only."""
    wanted = pusher_pb2.PushDestination()
    proto_utils.json_to_proto(push_destination, wanted)
    if not wanted.filesystem.base_directory:
        raise UserError(
            f"push_destination: {push_destination}: the Pusher writes versions to a file system. "
            "Give filesystem.base_directory."
        )
    return str(wanted.filesystem.base_directory)
