"""ImportSchema: imports a TFDV schema into the pipeline, cached by content.

TFX caches ImportSchemaGen by path and does not notice an edited schema. ImportSchema reads the file
when the pipeline is built, and passes the content as execution property. An edit re-runs components
that depend on the schema; a moved file or a changed comment does not. A compiled pipeline contains
the schema and runs on machines without the file.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.utils import io_utils

from stagecraft.common.errors import UserError
from stagecraft.components.anomaly_gate import checks
from stagecraft.components.interface import Artifacts, channels, parameters

FILE_NAME = "schema.pbtxt"
"""Name that SchemaGen and ImportSchemaGen use, and that Transform and Trainer expect."""


class Executor(base_executor.BaseExecutor):
    """Writes the schema in the layout of TFX's SchemaGen."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """See the class."""
        folder = artifact_utils.get_single_uri(output_dict["schema"])
        io_utils.write_string_file(os.path.join(folder, FILE_NAME), exec_properties["schema_text"])


class ImportSchemaSpec(component_spec.ComponentSpec):
    """Interface of ImportSchema."""

    PARAMETERS = parameters(schema_text=str)
    INPUTS = channels()
    OUTPUTS = channels(schema=standard_artifacts.Schema)


class ImportSchema(base_component.BaseComponent):
    """Imports a schema from a file; output ``schema``."""

    SPEC_CLASS = ImportSchemaSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(self, schema_file: str, comparators: Collection[str] = ()) -> None:
        """Reads the schema.

        Args:
          schema_file: path of a text proto ``tensorflow_metadata.v0.Schema``, on any file system
            that TFX supports.
          comparators: kinds of comparators for drift or skew that another component uses, such as
            ``drift_comparator``.

        Raises:
          UserError: the file is missing, unreadable, empty, or not such a schema; or it has a
            comparator that no component uses.
        """
        super().__init__(
            spec=ImportSchemaSpec(
                schema_text=text_format.MessageToString(_read(schema_file, comparators)),
                schema=types.Channel(type=standard_artifacts.Schema),
            )
        )


def _read(schema_file: str, comparators: Collection[str]) -> schema_pb2.Schema:
    line: int | None = None
    try:
        with fileio.open(schema_file, "rb") as file:
            schema = text_format.Parse(file.read().decode(), schema_pb2.Schema())
        if schema.feature:
            checks.refuse_comparators(schema, schema_file, comparators)
            return schema
        problem = "the schema has no features; expected 'feature { … }' sections."
    except text_format.ParseError as error:
        line = error.GetLine()
        problem = f"not a schema: {str(error).removeprefix(f'{line}:{error.GetColumn()} : ')}. "
        problem += "Expected a text proto of tensorflow_metadata.v0.Schema, with sections such as "
        problem += "'feature { name: \"label\" }'."
    except UnicodeDecodeError:
        problem = "not a schema: expected a text proto, found binary data."
    except UserError:
        raise
    except Exception as error:  # each file system has its own errors
        cause = getattr(error, "strerror", None) or str(error)
        problem = f"cannot read the schema: {cause}. Use the path of a TFDV schema (text proto)."
    where = f"{schema_file}, line {line}" if line else schema_file
    raise UserError(f"{where}: {problem}", file=schema_file, record=str(line or ""))
