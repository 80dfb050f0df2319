"""Artifacts of a run -> facts."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping

from tfx.dsl.io import fileio
from tfx.types import Artifact
from tfx.utils import io_utils

from stagecraft.components.evaluation import Evaluation, read_evaluation
from stagecraft.components.parity_gate.executor import JSON as PARITY
from stagecraft.components.report import data, history, pictures, training
from stagecraft.components.report.facts import (
    CalibrationBin,
    ClassFacts,
    Facts,
    Item,
    Quality,
    Wrong,
)
from stagecraft.components.report.pictures import Pixels
from stagecraft.trainer_module import labels

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
    evaluation = read_evaluation(evaluated.uri) if evaluated else None
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
        settings=settings,
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
    properties = {
        name: (value.WhichOneof("value"), value)
        for name, value in sorted(artifact.mlmd_artifact.custom_properties.items())
        if name not in _HIDDEN
    }
    return Item(
        role=role,
        kind=artifact.type_name,
        id=artifact.id,
        uri=artifact.uri,
        properties={
            name: text
            for name, (kind, value) in properties.items()
            if kind not in (None, "struct_value") and (text := str(getattr(value, kind)))
        },
    )
