"""ImportSchema: brings a TFDV schema into the pipeline, cached by its content.

TFX's own ImportSchemaGen is cached by path, so that an edited schema goes unnoticed. Here the
file is read when the pipeline is built, and its content is the execution property: an edit
re-runs what depends on the schema, a moved file or a changed comment does not, and a compiled
pipeline carries its schema along, to machines that lack the file.
"""

from __future__ import annotations

import os
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.utils import io_utils

from stagecraft.schemas.errors import UserError

FILE_NAME = "schema.pbtxt"
"""As SchemaGen and ImportSchemaGen call it; Transform and Trainer look for it."""


class Executor(base_executor.BaseExecutor):
    """Writes the schema where TFX's own SchemaGen would."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """See the class."""
        folder = artifact_utils.get_single_uri(output_dict["schema"])
        io_utils.write_string_file(os.path.join(folder, FILE_NAME), exec_properties["schema_text"])


class ImportSchemaSpec(component_spec.ComponentSpec):
    """Interface of ImportSchema."""

    PARAMETERS = {"schema_text": component_spec.ExecutionParameter(type=str)}
    INPUTS: dict[str, component_spec.ChannelParameter] = {}
    OUTPUTS = {"schema": component_spec.ChannelParameter(type=standard_artifacts.Schema)}


class ImportSchema(base_component.BaseComponent):
    """Imports a schema that people wrote; output ``schema``."""

    SPEC_CLASS = ImportSchemaSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(self, schema_file: str) -> None:
        """Reads the schema.

        Args:
          schema_file: path of a ``tensorflow_metadata.v0.Schema`` as text proto, on any file
            system that TFX reads.

        Raises:
          UserError: the file is missing, cannot be read, is no such schema, or is empty.
        """
        super().__init__(
            spec=ImportSchemaSpec(
                schema_text=text_format.MessageToString(_read(schema_file)),
                schema=types.Channel(type=standard_artifacts.Schema),
            )
        )


def _read(schema_file: str) -> schema_pb2.Schema:
    try:
        with fileio.open(schema_file, "rb") as file:
            schema = text_format.Parse(file.read().decode(), schema_pb2.Schema())
    except text_format.ParseError as error:
        line = error.GetLine()
        where = f"{schema_file}, line {line}" if line else schema_file
        cause = str(error).removeprefix(f"{line}:{error.GetColumn()} : ")
        raise UserError(
            f"{where}: not a schema: {cause}. Expected a text proto of "
            "tensorflow_metadata.v0.Schema, with sections such as 'feature { name: \"label\" }'."
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{schema_file}: not a schema: expected text, found bytes.") from None
    except Exception as error:  # each file system has errors of its own
        cause = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"{schema_file}: cannot read the schema: {cause}. Give the path of a TFDV schema "
            "(text proto)."
        ) from None
    if not schema.feature:
        raise UserError(
            f"{schema_file}: the schema has no features; expected 'feature {{ … }}' sections."
        )
    return schema
