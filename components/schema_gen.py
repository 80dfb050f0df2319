"""SchemaGen: TFX's, for which a column with NaN has missing values."""

from __future__ import annotations

import os
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.components.schema_gen import component, executor
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import executor_spec
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils, json_utils

from stagecraft.components import feature_statistics

Artifacts = dict[str, list[types.Artifact]]


class Executor(executor.Executor):
    """Infers the schema as TFX does, then drops the shape of each feature with NaN.

    TFDV counts NaN as a value, so that it requires one from each example.
    """

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """See the class."""
        super().Do(input_dict, output_dict, exec_properties)
        folder = artifact_utils.get_single_uri(output_dict[standard_component_specs.SCHEMA_KEY])
        path = os.path.join(folder, executor.DEFAULT_FILE_NAME)
        schema = io_utils.parse_pbtxt_file(path, schema_pb2.Schema())
        excluded = exec_properties.get(standard_component_specs.EXCLUDE_SPLITS_KEY, "null")
        statistics = artifact_utils.get_single_instance(
            input_dict[standard_component_specs.STATISTICS_KEY]
        )
        gaps = {
            feature_statistics.name_of(feature)
            for split in artifact_utils.decode_split_names(statistics.split_names)
            if split not in (json_utils.loads(excluded) or ())
            for feature in stats_artifact_utils.load_statistics(statistics, split)
            .get_default_slice_or_die()
            .proto()
            .features
            if feature_statistics.nan_values(feature)
        }
        for feature in schema.feature:
            if feature.name in gaps and feature.HasField("shape"):
                feature.value_count.min = feature.value_count.max = 1
                feature.presence.ClearField("min_fraction")
        io_utils.write_string_file(path, text_format.MessageToString(schema))


class SchemaGen(component.SchemaGen):
    """Infers a schema from statistics; in a column, NaN is a missing value."""

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)
