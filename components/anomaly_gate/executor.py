"""The executor of AnomalyGate: runs all checks, then writes the output or raises."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import tensorflow_data_validation as tfdv
from tfx import types
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils, writer_utils

from stagecraft.common.errors import UserError
from stagecraft.components.anomaly_gate import (
    COLUMNS,
    EARLIER,
    FILE_NAME,
    UNSEEN,
    checks,
    drift,
)
from stagecraft.components.anomaly_gate.checks import Finding
from stagecraft.components.anomaly_gate.scan import duplicates, scan, value_mismatches
from stagecraft.components.interface import Artifacts
from stagecraft.components.metadata import manifest
from stagecraft.schemas import features
from stagecraft.trainer_module.data.tasks.mismatches import Mismatch, MismatchError, missing
from stagecraft.trainer_module.settings import TaskSettings


class AnomaliesError(UserError):
    """The data does not conform to its schema, or to the settings."""

    def __init__(
        self,
        findings: Sequence[Finding],
        mismatches: Sequence[Mismatch] = (),
        inferred: bool = False,
    ):
        """``inferred``: whether the schema is."""
        texts = [checks.report(findings, inferred)] if findings else []
        fields: dict[str, Any] = {}
        if findings:
            fields = {"record": findings[0].feature, "file": findings[0].file}
        if mismatches:
            error = MismatchError(mismatches)
            texts.insert(0, str(error).rstrip(".") + ".")
            first = mismatches[0]
            fields = {"setting": first.setting, "value": first.value, "suggestion": first.use}
            fields["record"] = first.feature
        super().__init__(" ".join(texts), **fields)
        self.findings, self.mismatches = tuple(findings), tuple(mismatches)


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
        limits = drift.Limits(**json.loads(exec_properties.get("limits") or "{}"))
        checks.refuse_comparators(schema, schema_file, limits.comparators)
        needs = json.loads(exec_properties.get("needs") or "[]")
        known = [feature.name for feature in schema.feature]
        chosen = exec_properties.get("task")
        task = TaskSettings.model_validate_json(chosen).found if chosen else None
        if task is None:
            features.require(schema_file, known, needs, "use the name of a feature")
        else:
            checks.check_representations(schema, schema_file, task.schema_features)

        splits = artifact_utils.decode_split_names(examples.split_names)
        views = {split: _statistics(statistics, split) for split in splits}
        wholes = {s: view.get_default_slice_or_die().proto() for s, view in views.items()}
        folders = {split: artifact_utils.get_split_uri([examples], split) for split in splits}
        files = {s: sorted(fileio.glob(os.path.join(path, "*"))) for s, path in folders.items()}

        wanted = checks.rules(schema) if exec_properties.get("pictures", 1) else []
        rules, findings = checks.readable(wholes, wanted)
        scanned, ids = scan(files, rules, named=checks.have_names(wholes))
        findings += scanned
        validated = {s: tfdv.validate_statistics(views[s].proto(), schema) for s in splits}
        numbers = json.loads(exec_properties.get("numbers") or "[]")
        for split in splits:
            findings += checks.statistics_findings(split, wholes[split], validated[split], findings)
            findings += checks.number_findings(split, wholes[split], schema, numbers)
        findings += duplicates(ids)
        train = exec_properties.get("train_split") or features.TRAIN
        earlier = None
        if before := input_dict.get(EARLIER):
            view = _statistics(artifact_utils.get_single_instance(before), train)
            earlier = view.get_default_slice_or_die().proto()
        if not findings:
            used = known if task is None else task.schema_features
            findings += drift.findings(wholes, earlier, schema, limits, used, train)
        unknown = [name for name in limits.features if name not in known]
        mismatches = [missing("drift.features", each, each, known) for each in unknown]
        unseen = ""
        if task is not None:
            observed = checks.observed(schema, wholes)
            mismatches += task.mismatches(observed, train)
            mismatches += value_mismatches(files, wholes, task.value_checks())
            absent = [name for name in needs if name not in known]
            mismatches += [missing("evaluate.slices", each, each, known) for each in absent]
            wrong = {mismatch.feature for mismatch in mismatches}
            findings = [finding for finding in findings if finding.feature not in wrong]
            unseen = checks.unseen(observed, task.categories, train)
        if findings or mismatches:
            findings.sort(key=lambda finding: splits.index(finding.split))
            inferred = bool(exec_properties.get("inferred"))
            raise AnomaliesError(findings, mismatches, inferred)

        anomalies = artifact_utils.get_single_instance(output_dict["anomalies"])
        anomalies.split_names = artifact_utils.encode_split_names(splits)
        anomalies.span = statistics.span
        anomalies.set_int_custom_property("anomalies", 0)
        if earlier is not None and (changed := drift.columns(wholes[train], earlier)):
            anomalies.set_string_custom_property(COLUMNS, changed)
        if unseen:
            anomalies.set_string_custom_property(UNSEEN, unseen)
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
