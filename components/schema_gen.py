"""SchemaGen: TFX's, for values that other data may have as well."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.components.schema_gen import executor
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import (
    artifact_utils,
    standard_artifacts,
    standard_component_specs,
)
from tfx.utils import io_utils, json_utils

from stagecraft.components import feature_statistics
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.components.interface import Artifacts, parameters


class Executor(executor.Executor):
    """Infers the schema as TFX does, then makes it less strict.

    TFDV counts NaN as a value, so that it requires one from each example; here a feature with NaN
    has gaps. TFDV also requires that each text of other data is one of the train split; here the
    texts are only listed. An unused feature may have gaps, and a list any length.
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
        used = json.loads(exec_properties.get("used") or "null")
        lists = json.loads(exec_properties.get("lists") or "[]")
        for feature in schema.feature:
            is_unused = used is not None and feature.name not in used
            if is_unused or feature.name in lists:
                for field in ("shape", "value_count", "presence"):
                    feature.ClearField(field)
            elif feature.name in gaps and feature.HasField("shape"):
                feature.value_count.min = feature.value_count.max = 1
                feature.presence.ClearField("min_fraction")
            if feature.type == schema_pb2.INT:  # whose values StatisticsGen counted as texts
                feature.ClearField("domain")
            elif feature.domain:
                feature.distribution_constraints.min_domain_mass = 0.0
        listed = {feature.domain for feature in schema.feature}
        domains = [each for each in schema.string_domain if each.name in listed]
        del schema.string_domain[:]
        schema.string_domain.extend(domains)
        io_utils.write_string_file(path, text_format.MessageToString(schema))


class SchemaGenSpec(standard_component_specs.SchemaGenSpec):
    """Interface of SchemaGen."""

    PARAMETERS = {
        **standard_component_specs.SchemaGenSpec.PARAMETERS,
        **parameters(optional=True, used=str, lists=str, code_fingerprint=str),
    }


class SchemaGen(base_component.BaseComponent):
    """Infers a schema from statistics; NaN is a missing value, and new texts are valid."""

    SPEC_CLASS = SchemaGenSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        statistics: types.BaseChannel,
        exclude_splits: Sequence[str] = (),
        used: Sequence[str] | None = None,
        lists: Sequence[str] = (),
    ) -> None:
        """Connects the inputs.

        Args:
          exclude_splits: the splits that say nothing about the schema.
          used: features that are used; None: all.
          lists: features with lists, which may be empty, and longer than those of the train split.
        """
        super().__init__(
            spec=SchemaGenSpec(
                statistics=statistics,
                infer_feature_shape=1,
                exclude_splits=json_utils.dumps(list(exclude_splits)),
                schema=types.Channel(type=standard_artifacts.Schema),
                code_fingerprint=code_fingerprint(__name__),
                **({} if used is None else {"used": json.dumps(sorted(used))}),
                **({"lists": json.dumps(sorted(lists))} if lists else {}),
            )
        )
