"""The executor of AnomalyGate: runs all checks, then writes the output or raises."""

from __future__ import annotations

import json
import os
from typing import Any

import tensorflow_data_validation as tfdv
from tfx import types
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils, writer_utils

from stagecraft.common.errors import UserError
from stagecraft.components.anomaly_gate import FILE_NAME, checks, values
from stagecraft.components.anomaly_gate.checks import Finding
from stagecraft.components.anomaly_gate.scan import duplicates, scan
from stagecraft.components.metadata import manifest
from stagecraft.schemas import missing_features
from stagecraft.trainer_module import registries

Artifacts = dict[str, list[types.Artifact]]


class AnomaliesError(UserError):
    """The data does not conform to its schema."""

    def __init__(self, findings: list[Finding]):
        first = findings[0]
        super().__init__(
            checks.report(findings),
            record=first.feature,
            setting=first.setting,
            value=first.value,
            suggestion=first.suggestion,
        )
        self.findings = tuple(findings)


class Executor(base_executor.BaseExecutor):
    """Validates statistics and examples against the schema."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """See the component."""
        manifest.check(input_dict)
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        statistics = artifact_utils.get_single_instance(input_dict["statistics"])
        schema_folder = artifact_utils.get_single_uri(input_dict["schema"])
        schema_file = io_utils.get_only_uri_in_dir(schema_folder)
        schema = io_utils.SchemaReader().read(schema_file)
        checks.refuse_comparators(schema, schema_file)
        missing_features.check(
            schema_file,
            (feature.name for feature in schema.feature),
            json.loads(exec_properties.get("needs") or "[]"),
            "use the name of a feature",
        )

        splits = artifact_utils.decode_split_names(examples.split_names)
        views = {split: _statistics(statistics, split) for split in splits}
        wholes = {s: view.get_default_slice_or_die().proto() for s, view in views.items()}
        folders = {split: artifact_utils.get_split_uri([examples], split) for split in splits}
        files = {s: sorted(fileio.glob(os.path.join(path, "*"))) for s, path in folders.items()}

        wanted = checks.rules(schema) if exec_properties.get("pictures", 1) else []
        rules, findings = checks.readable(wholes, wanted)
        scanned, ids = scan(files, rules)
        findings += scanned
        validated = {s: tfdv.validate_statistics(views[s].proto(), schema) for s in splits}
        numbers = json.loads(exec_properties.get("numbers") or "[]")
        for split in splits:
            findings += checks.statistics_findings(split, wholes[split], validated[split], findings)
            findings += checks.number_findings(split, wholes[split], schema, numbers)
        findings += duplicates(ids)
        if task := json.loads(exec_properties.get("task") or "null"):
            found = registries.task(task["name"], task["args"])
            findings += values.findings(files, wholes, found.value_checks())
        if findings:
            findings.sort(key=lambda finding: splits.index(finding.split))
            raise AnomaliesError(findings)

        anomalies = artifact_utils.get_single_instance(output_dict["anomalies"])
        anomalies.split_names = artifact_utils.encode_split_names(splits)
        anomalies.span = statistics.span
        anomalies.set_int_custom_property("anomalies", 0)
        anomalies.set_json_value_custom_property("blessed", dict.fromkeys(splits, 1))
        for split, proto in validated.items():
            folder = artifact_utils.get_split_uri([anomalies], split)
            writer_utils.write_anomalies(os.path.join(folder, FILE_NAME), proto)


def _statistics(statistics: types.Artifact, split: str) -> tfdv.DatasetListView:
    known = artifact_utils.decode_split_names(statistics.split_names)
    if split not in known:
        raise UserError(
            f"Split {split} of the examples has no statistics (splits with statistics: "
            f"{', '.join(known)}). Configure StatisticsGen to include it.",
            record=split,
        )
    return stats_artifact_utils.load_statistics(statistics, split)
