"""Collects the data of a report from the artifacts of a run."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import yaml
from pydantic import ValidationError
from tfx.dsl.io import fileio
from tfx.types import Artifact
from tfx.utils import io_utils, path_utils

from stagecraft.common import secrets
from stagecraft.common.errors import UserError
from stagecraft.common.text import visible
from stagecraft.components.evaluator.evaluation import Evaluation
from stagecraft.components.evaluator.results import read_evaluation
from stagecraft.components.example_gen import spans
from stagecraft.components.metadata import manifest, run_metadata
from stagecraft.components.metadata.run_metadata import RunMetadata
from stagecraft.components.object_store import filesystem
from stagecraft.components.object_store.location import permanent_uri
from stagecraft.components.parity_gate import JSON as PARITY
from stagecraft.components.report import data_summary, earlier_models, images
from stagecraft.components.report.images import Pixels
from stagecraft.components.report.report_data import (
    ClassMetrics,
    LineageItem,
    Quality,
    ReportData,
    TaskSummary,
    Training,
)
from stagecraft.trainer_module.data import schema_reader
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.settings import TaskSettings, TrainingSettings
from stagecraft.trainer_module.training import record
from stagecraft.trainer_module.training.assets import CLASSES, SAMPLES
from stagecraft.trainer_module.training.monitoring import curve, timeline

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
"""Roles of artifacts in a run, in order."""

_HIDDEN = {
    *("name", "producer_component", "state", "tfx_version", "type_name", "is_external"),
    manifest.PROPERTY,
}
"""Properties that all artifacts have, or that the report shows elsewhere."""


def collect(
    artifacts: Mapping[str, Artifact],
    *,
    pipeline: str,
    run_id: str,
    metadata_db: str = "",
    settings: str = "",
) -> ReportData:
    """Collects everything known about a run.

    Args:
        artifacts: by role, see ``ROLES``. Parts whose artifacts are missing stay empty.
        metadata_db: SQLite file of ML Metadata, for the time per component; may be empty. A step on
            Kubeflow cannot reach its store.
    """
    schema, model = artifacts.get("schema"), artifacts.get("model")
    model_run, evaluated = artifacts.get("model_run"), artifacts.get("evaluation")
    trained = read_training(model_run, model) if model_run else None
    tree = yaml.safe_load(settings or "") or {}
    task = _task(tree, trained)
    names: tuple[str, ...] = ()
    schema_path = io_utils.get_only_uri_in_dir(schema.uri) if schema else None
    if schema_path and task and task.class_label is not None:
        names = tuple(map(visible, schema_reader.class_names(schema_path)))
    found = _asset(path_utils.serving_model_path(model.uri), CLASSES) if model else None
    found = tuple(map(visible, found or ()))
    evaluation = read_evaluation(evaluated.uri, names) if evaluated else None
    ids = [mistake.id for mistake in evaluation.mistakes] if evaluation else []
    picture = schema_reader.picture(schema_path) if schema_path else schema_reader.Picture()
    sections = task.report_sections if task else ()
    data, pixels, files = data_summary.read(artifacts, names, trained, ids, sections, picture)
    if data and trained:
        data = dataclasses.replace(data, window=_window(tree, trained, artifacts))
    run = RunMetadata.open(metadata_db, run_id) if metadata_db else None
    pushed = artifacts.get("pushed_model")
    if pushed is not None and not pushed.get_int_custom_property("pushed"):
        pushed = None
    parity = _text(artifacts["parity"].uri, PARITY) if "parity" in artifacts else None
    return ReportData(
        pipeline=pipeline,
        run_id=run_id,
        written=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        class_names=names,
        task=TaskSummary.of(task, schema_path, names, found) if task else TaskSummary(),
        quality=_quality(evaluation, artifacts.get("blessing"), names, pixels, files),
        pushed_to=pushed.get_string_custom_property("pushed_destination") if pushed else None,
        pushed_version=pushed.get_string_custom_property("pushed_version") if pushed else None,
        training=trained,
        data=data,
        components=run_metadata.component_runs(run),
        parity=json.loads(parity) if parity else None,
        lineage=[_item(role, artifacts[role]) for role in ROLES if role in artifacts],
        settings=_settings(settings, trained),
        command=run.notes.command if run else "",
        versions=trained.record["versions"] if trained else {},
        earlier_models=(
            earlier_models.read(
                metadata_db, evaluated, artifacts.get("examples"), evaluation.metrics
            )
            if evaluated and evaluation
            else ()
        ),
    )


def read_training(model_run: Artifact, model: Artifact | None) -> Training | None:
    """The Trainer's results; None if a user's own ``run_fn`` wrote no record."""
    text = _text(model_run.uri, record.FILE_NAME)
    parsed = None if text is None else record.parse(text, f"{model_run.uri}/{record.FILE_NAME}")
    if parsed is None:
        return None
    points = _text(model_run.uri, curve.FILE_NAME)
    spans = _text(model_run.uri, timeline.DATA)
    saved_model = path_utils.serving_model_path(model.uri) if model else None
    return Training(
        record=parsed,
        curve=curve.read(points) if points else [],
        timeline=json.loads(spans) if spans else None,
        parameters=_parameters(saved_model) if saved_model else None,
        samples=(_asset(saved_model, SAMPLES) or {}) if saved_model else {},
    )


def _text(folder: str, name: str) -> str | None:
    content = filesystem.read(os.path.join(folder, name))
    return None if content is None else content.decode()


def _task(settings: Mapping[str, Any], trained: Training | None) -> Task | None:
    """The task of the run; None if this machine has no such task any more."""
    if trained is not None:
        flat = trained.record["settings"].items()
        chosen = {n.removeprefix("task_"): v for n, v in flat if n.startswith("task_")}
    else:
        chosen = settings.get("task") or {}
    try:
        return TaskSettings.model_validate(chosen).found
    except (UserError, ValidationError):
        return None


def _asset(saved_model: str, name: str) -> Any:
    """A JSON file of an export; None if there is none."""
    text = _text(saved_model, name)
    return json.loads(text) if text else None


def _parameters(saved_model: str) -> int | None:
    variables: Any = os.path.join(saved_model, "variables", "variables")
    if not fileio.exists(f"{variables}.index"):
        return None
    shapes = {
        name: shape
        for name, shape in tf.train.list_variables(variables)
        if name.endswith("/.ATTRIBUTES/VARIABLE_VALUE")
    }
    # Our exports store variables under their layers, too.
    own = {name: shape for name, shape in shapes.items() if name.startswith("model_variables/")}
    counted = (own or shapes).values()
    return int(sum(np.prod(shape, dtype=np.int64) for shape in counted))


def _quality(
    evaluation: Evaluation | None,
    blessing: Artifact | None,
    names: tuple[str, ...],
    pixels: Mapping[int, Pixels],
    files: Mapping[int, str],
) -> Quality | None:
    if evaluation is None:
        return None
    return Quality(
        **vars(evaluation),
        classes=_classes(evaluation.confusion, names),
        images={example_id: images.png(image) for example_id, image in pixels.items()},
        files=files,
        blessed=blessing is not None and blessing.get_int_custom_property("blessed") == 1,
    )


def _classes(confusion: list[list[int]], names: tuple[str, ...]) -> list[ClassMetrics]:
    predicted = [sum(column) for column in zip(*confusion, strict=True)]
    return [
        ClassMetrics(
            name=names[label] if label < len(names) else str(label),
            examples=sum(row),
            precision=row[label] / predicted[label] if predicted[label] else None,
            recall=row[label] / sum(row) if sum(row) else None,
        )
        for label, row in enumerate(confusion)
    ]


def _item(role: str, artifact: Artifact) -> LineageItem:
    address = permanent_uri(artifact.uri)
    names = sorted(set(artifact.mlmd_artifact.custom_properties) - _HIDDEN)
    values = {name: artifact.get_custom_property(name) for name in names}
    return LineageItem(
        role=role,
        kind=artifact.type_name,
        # For a local copy of a remote artifact, TFX invents an id.
        id=artifact.id if address == artifact.uri else 0,
        uri=secrets.redact(address),
        properties={
            name: _shown(value)
            for name, value in values.items()
            if isinstance(value, (str, int, float)) and value != ""
        },
    )


def _shown(value: str | int | float) -> str:
    """A property for people. Kubeflow passes whole numbers as doubles."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.6g}"
    return secrets.redact(str(value))


def _window(
    settings: Mapping[str, Any], trained: Training, artifacts: Mapping[str, Artifact]
) -> str:
    """The spans that the model is trained on, if the settings have a window of several."""
    size = (settings.get("data") or {}).get("window")
    read = trained.record.get("spans")
    if not size or not read:
        return ""
    properties = run_metadata.of_artifact(artifacts["examples"].mlmd_artifact)
    return spans.window(spans.with_versions(read, properties), size).words()


def _settings(text: str, trained: Training | None) -> str:
    """The pipeline's settings, updated with the training's runtime parameters.

    Secrets and the section ``kubeflow`` are left out.
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
            tree.setdefault(section, {})[field] = TrainingSettings.parsed(name, value)
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
