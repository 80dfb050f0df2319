"""Artifacts of a run -> facts."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping

import yaml
from tfx.dsl.io import fileio
from tfx.types import Artifact
from tfx.utils import io_utils

from stagecraft.components.evaluator.results import Evaluation, read_evaluation
from stagecraft.components.object_store import permanent_uris
from stagecraft.components.parity_gate.executor import JSON as PARITY
from stagecraft.components.report import data, history, pictures, training
from stagecraft.components.report.facts import (
    CalibrationBin,
    ClassFacts,
    Facts,
    Item,
    Quality,
    Training,
    Wrong,
)
from stagecraft.components.report.pictures import Pixels
from stagecraft.schemas import secrets
from stagecraft.trainer_module.data import labels
from stagecraft.trainer_module.settings import TrainingSettings

ROLES = (
    "examples",
    "statistics",
    "schema",
    "anomalies",
    "transform_graph",
    "parity",
    "model",
    "model_run",
    "evaluation",
    "blessing",
    "pushed_model",
)
"""What an artifact is to the run, in order."""

_HIDDEN = {"name", "producer_component", "state", "tfx_version", "type_name", "is_external"}
"""Properties that TFX gives to all artifacts, or that are told elsewhere."""


def gather(
    given: Mapping[str, Artifact],
    *,
    pipeline: str,
    run_id: str,
    metadata_db: str = "",
    settings: str = "",
) -> Facts:
    """Reads what is known of a run.

    Args:
        given: artifacts by role, out of ``ROLES``; those that are missing leave their part empty.
        pipeline: its name.
        run_id: of the run.
        metadata_db: SQLite file of ML Metadata, for times; empty: there is none to be asked.
        settings: YAML of the pipeline's settings that are not the default.

    Raises:
        UserError: the schema names no classes.
    """
    names = _class_names(given)
    run, evaluated = given.get("model_run"), given.get("evaluation")
    trained = training.read(run, given.get("model")) if run else None
    evaluation = read_evaluation(evaluated.uri, names) if evaluated else None
    ids = [mistake.id for mistake in evaluation.mistakes] if evaluation else []
    read, found = data.read(given, names, trained, ids)
    pushed = given.get("pushed_model")
    if pushed is not None and not pushed.get_int_custom_property("pushed"):
        pushed = None
    return Facts(
        pipeline=pipeline,
        run_id=run_id,
        written=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        class_names=names,
        quality=_quality(evaluation, given.get("blessing"), names, found) if evaluation else None,
        pushed_to=pushed.get_string_custom_property("pushed_destination") if pushed else None,
        pushed_version=pushed.get_string_custom_property("pushed_version") if pushed else None,
        training=trained,
        data=read,
        components=history.read(metadata_db, run_id) if metadata_db else [],
        parity=_parity(given["parity"]) if "parity" in given else None,
        lineage=[_item(role, given[role]) for role in ROLES if role in given],
        settings=_settings(settings, trained),
        command=history.notes(metadata_db, run_id).command if metadata_db else "",
        versions=trained.record["versions"] if trained else {},
    )


def _class_names(given: Mapping[str, Artifact]) -> tuple[str, ...]:
    if "schema" not in given:
        return ()
    return labels.class_names(io_utils.get_only_uri_in_dir(given["schema"].uri))


def _quality(
    found: Evaluation,
    blessing: Artifact | None,
    names: tuple[str, ...],
    pictures_by_id: Mapping[int, Pixels],
) -> Quality:
    return Quality(
        metrics=found.metrics,
        changes=found.changes,
        confusion=found.confusion,
        classes=_classes(found.confusion, names),
        calibration=[CalibrationBin(**each._asdict()) for each in found.calibration],
        mistakes=[
            Wrong(
                id=mistake.id,
                actual=_name(names, mistake.actual),
                predicted=_name(names, mistake.predicted),
                confidence=mistake.confidence,
                probability=mistake.probability,
                png=(
                    pictures.png(pictures_by_id[mistake.id])
                    if mistake.id in pictures_by_id
                    else None
                ),
            )
            for mistake in found.mistakes
        ],
        min_accuracy=found.min_accuracy,
        failures=found.failures,
        blessed=blessing is not None and blessing.get_int_custom_property("blessed") == 1,
    )


def _classes(confusion: list[list[int]], names: tuple[str, ...]) -> list[ClassFacts]:
    facts = []
    for label, row in enumerate(confusion):
        examples, taken = sum(row), sum(other[label] for other in confusion)
        facts.append(
            ClassFacts(
                name=_name(names, label),
                examples=examples,
                precision=row[label] / taken if taken else None,
                recall=row[label] / examples if examples else None,
            )
        )
    return facts


def _name(names: tuple[str, ...], label: int) -> str:
    return names[label] if label < len(names) else str(label)


def _parity(artifact: Artifact) -> dict[str, object] | None:
    path = os.path.join(artifact.uri, PARITY)
    if not fileio.exists(path):
        return None
    with fileio.open(path) as file:
        found: dict[str, object] = json.load(file)
    return found


def _item(role: str, artifact: Artifact) -> Item:
    address = permanent_uris.permanent_uri(artifact.uri)
    names = sorted(set(artifact.mlmd_artifact.custom_properties) - _HIDDEN)
    values = {name: artifact.get_custom_property(name) for name in names}
    return Item(
        role=role,
        kind=artifact.type_name,
        # TFX makes up an id of a copy's, which no store knows.
        id=artifact.id if address == artifact.uri else 0,
        uri=secrets.redact(address),
        properties={
            name: _text(value)
            for name, value in values.items()
            if isinstance(value, (str, int, float)) and value != ""
        },
    )


def _text(value: str | int | float) -> str:
    """As people write it; Kubeflow hands whole numbers over as doubles."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.6g}"
    return secrets.redact(str(value))


def _settings(text: str, trained: Training | None) -> str:
    """The pipeline's settings, with those that the training was given when the run began.

    Secrets are left out, also where the pipeline is somebody's own, and so is ``kubeflow``.
    """
    text = secrets.redact_yaml(text)
    if not text or trained is None:
        return text
    tree = yaml.safe_load(text)
    tree.pop("kubeflow", None)
    default = TrainingSettings().flat()
    for section in TrainingSettings.model_fields:
        tree.pop(section, None)
    for name, value in trained.record["settings"].items():
        if value != default.get(name):
            section, _, field = name.partition("_")
            tree.setdefault(section, {})[field] = value
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
