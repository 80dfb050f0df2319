"""Reads a past run from ML Metadata and a few files; TensorFlow only for one without a report."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from stagecraft.common import secrets
from stagecraft.common.errors import UserError
from stagecraft.components.evaluator.evaluation import ACCURACY, MONITOR
from stagecraft.components.example_gen import spans
from stagecraft.components.metadata import run_metadata
from stagecraft.components.metadata.run_metadata import ComponentRun, Properties, RunMetadata
from stagecraft.components.report.pages import sentences
from stagecraft.pipeline import settings as pipeline_settings
from stagecraft.pipeline.history.runs import RecordedRun
from stagecraft.pipeline.local import layout, lock
from stagecraft.pipeline.settings import DataSettings, PipelineSettings
from stagecraft.pipeline.settings.data import EXAMPLE_GEN
from stagecraft.schemas import features
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.training import record

Flat = dict[str, Any]
"""Settings: dotted name, such as ``train.epochs`` -> value."""

_COUNTS = {split: f"count_{split}" for split in (features.TRAIN, features.VAL, features.EVAL)}

_OF_MODEL = ("steps", "images_per_second", "training_seconds")
_OF_VAL = "val_"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastRun:
    """A run, complete or not. None and empty values are unknown."""

    output: pathlib.Path
    id: str
    pipeline: str
    began: datetime.datetime
    state: str
    """``done``, ``running``, ``failed``, or ``stopped`` by a signal or a crash."""
    component: str | None
    """The one that is running, failed or was stopped."""
    cause: str
    seconds: float
    source: str
    """Source of the data: ``sample``, ``download`` or a path."""
    fingerprint: str
    """SHA-256 of the data's content."""
    span: dict[str, int | str]
    """``span``, ``name``, ``version`` and ``files``; empty if the data have no spans."""
    examples: dict[str, int]
    settings: Flat
    settings_are_whole: bool
    base: str
    """The preset that ``changed`` compares with, or ``defaults``."""
    changed: Flat
    """The settings that differ from ``base``."""
    code: dict[str, str]
    topology: str
    metrics: dict[str, float]
    monitor: str
    """The metric that people look at first."""
    resumed_from: int | None
    """The step of the checkpoint; the last step means that an earlier run trained all steps."""
    blessed: bool | None
    pushed: str | None
    components: list[ComponentRun]

    def as_json(self) -> dict[str, Any]:
        """The run for programs, with only the settings that differ from ``base``."""
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("id", "settings", "changed", "components")
        }
        return {
            "run_id": self.id,
            **fields,
            "output": str(self.output),
            "began": self.began.isoformat(timespec="seconds"),
            "settings": self.changed,
            "components": {
                each.name: {"seconds": each.seconds, "state": each.state}
                for each in self.components
            },
        }


def read(run: RecordedRun) -> PastRun:
    """Reads a run."""
    recorded = RunMetadata.open(layout.metadata_db(run.output), run.id)
    if recorded is None:
        raise UserError(f"{run.address}: the metadata store has no such run")
    pipeline = recorded.pipeline
    all_components = components(run, recorded)
    state, component = _state(all_components, _is_running(run))
    executions, artifacts = _executions(recorded), _artifacts(recorded)
    settings = known_settings(executions, recorded.notes.settings)
    base, others = base_settings(pipeline)
    examples = artifacts.get("Examples", {})
    # TFX's ExampleGens have an input_base; those with a query have none.
    inputs = (str(p["input_base"]) for p in executions.values() if p.get("input_base"))
    pushed = artifacts.get("PushedModel", {})
    metrics, monitor = _metrics(artifacts)
    trained = _record(artifacts)
    blessed = artifacts.get("ModelBlessing", {}).get("blessed")
    return PastRun(
        output=run.output,
        id=run.id,
        pipeline=pipeline,
        began=datetime.datetime.fromtimestamp(run.began).astimezone(),
        state=state,
        component=component,
        cause=next((each.cause for each in all_components if each.cause), ""),
        seconds=round(_seconds(run, all_components, state), 2),
        source=examples.get("source") or settings.get("data.source") or next(inputs, ""),
        fingerprint=examples.get("fingerprint") or _fingerprint(examples),
        span=spans.told(examples),
        examples=_examples(examples, trained),
        settings=settings,
        settings_are_whole=default_settings().keys() <= settings.keys(),
        base=base,
        changed=changed_settings(settings, others),
        code=_code(executions),
        topology=_topology(trained, settings),
        metrics=metrics,
        monitor=monitor,
        resumed_from=artifacts.get("Model", {}).get("resumed_from"),
        blessed=None if blessed is None else blessed == 1,
        pushed=pushed["pushed_destination"] if pushed.get("pushed") else None,
        components=all_components,
    )


def components(run: RecordedRun, recorded: RunMetadata | None) -> list[ComponentRun]:
    """The components of a run. If no process runs, ``running`` components are ``stopped``."""
    stored = run_metadata.component_runs(recorded)
    if _is_running(run):
        return stored
    return [
        dataclasses.replace(each, state="stopped") if each.state == "running" else each
        for each in stored
    ]


def _is_running(run: RecordedRun) -> bool:
    held_since = lock.held_since(run.output)
    return held_since is not None and run.began >= held_since


def _state(components: list[ComponentRun], going_on: bool) -> tuple[str, str | None]:
    for state in ("failed", "stopped", "running"):
        for each in components:
            if each.state == state:
                return state, each.name
    if going_on:
        return "running", None
    begun = any(each.state != run_metadata.NOT_RUN for each in components)
    ended = all(each.state != run_metadata.NOT_RUN for each in components)
    return ("done" if begun and ended else "stopped"), None


def _seconds(run: RecordedRun, components: list[ComponentRun], state: str) -> float:
    if state == "running":
        return time.time() - run.began
    return max((each.begin + each.seconds for each in components), default=0.0)


def _executions(recorded: RunMetadata) -> dict[str, Properties]:
    """Node id -> properties of its execution."""
    properties_by_node = {}
    for execution in recorded.executions:
        properties = run_metadata.values(execution.custom_properties)
        # An execution that a partial run skipped has only outputs.
        if not properties and (original := recorded.original(execution)):
            properties = run_metadata.values(original.custom_properties)
        if node := recorded.node(execution):
            properties_by_node[node] = properties
    return properties_by_node


def _artifacts(recorded: RunMetadata) -> dict[str, Properties]:
    """Type -> properties and ``uri`` of the run's first one; Transform may write more examples."""
    return {
        artifact.type: {"uri": artifact.uri, **run_metadata.values(artifact.custom_properties)}
        for artifact in reversed(recorded.outputs())
    }


def _fingerprint(examples: Properties) -> str:
    """SHA-256 of the input fingerprint of TFX's driver: number, size and checksum of files."""
    text = str(examples.get("input_fingerprint", ""))
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _examples(examples: Properties, trained: dict[str, Any]) -> dict[str, int]:
    """Examples by split, as the ExampleGen or (for two splits) the Trainer counted them."""
    counted = {split: examples[key] for split, key in _COUNTS.items() if key in examples}
    return counted or dict(trained.get("examples", {}))


def _record(artifacts: Mapping[str, Properties]) -> dict[str, Any]:
    """The Trainer's record; empty if it has none with a topology, or its files are gone."""
    if "ModelRun" not in artifacts:
        return {}
    return record.find(artifacts["ModelRun"]["uri"], ("topology",)) or {}


def _code(executions: Mapping[str, Properties]) -> dict[str, str]:
    fingerprints = {}
    for node, properties in executions.items():
        if node == "Transform":  # TFX's component: custom_config has the fingerprint
            properties = json.loads(properties.get("custom_config") or "null") or {}
        if "code_fingerprint" in properties:
            fingerprints[node] = str(properties["code_fingerprint"])
    return fingerprints


def _topology(trained: dict[str, Any], settings: Flat) -> str:
    """The topology in the Trainer's record; without a record, that of the settings."""
    if trained:
        return sentences.grid_text(trained)
    if "parallel.strategy" not in settings:
        return ""
    workers, replicas, stages = (
        settings[f"parallel.{name}"] for name in ("workers", "replicas", "stages")
    )
    shards = settings.get("parallel.shards", 1)  # an older run has none
    return strategy.label(settings["parallel.strategy"], workers * replicas, stages, shards)


def _metrics(artifacts: Mapping[str, Properties]) -> tuple[dict[str, float], str]:
    """The metrics, and the name of the one that people look at first."""
    model = artifacts.get("Model", {})
    metrics = {
        name: float(value)
        for name, value in model.items()
        if name in _OF_MODEL or (name.startswith(_OF_VAL) and isinstance(value, float))
    }
    monitor = str(model.get(MONITOR) or ACCURACY)
    if "system.Metrics" in artifacts:
        figures = artifacts["system.Metrics"]
        found = {name: value for name, value in figures.items() if isinstance(value, float)}
        return metrics | found, str(figures.get(MONITOR) or monitor)
    folder = artifacts.get("ModelEvaluation", {}).get("uri", "")
    if os.path.isdir(folder):
        from stagecraft.components.evaluator.results import read_evaluation  # and TensorFlow

        evaluation = read_evaluation(folder)
        return metrics | evaluation.metrics, evaluation.monitor
    return metrics, monitor


def known_settings(executions: Mapping[str, Properties], noted: str = "") -> Flat:
    """The settings of a run, from ML Metadata.

    The TrainingReport's execution has all settings, and so do the notes of the run. Without both,
    each execution has the settings of its own component.

    Args:
        executions: node id -> properties of its execution.
        noted: YAML of the settings that differ from the defaults, from the notes of the run.
    """
    settings: Flat = {}
    if text := executions.get("TrainingReport", {}).get("settings") or noted:
        # Earlier versions of Stagecraft recorded secrets.
        settings = default_settings() | flat(
            pipeline_settings.without_secrets(yaml.safe_load(text))
        )
    if EXAMPLE_GEN in executions:
        settings |= _of_data(executions[EXAMPLE_GEN])
    if "Trainer" in executions:
        settings |= _of_training(executions["Trainer"])
    left: Flat = secrets.redact_tree(settings)
    return left


def default_settings() -> Flat:
    """The default of every setting that a run records."""
    return flat(pipeline_settings.recorded(PipelineSettings()))


def base_settings(pipeline: str) -> tuple[str, Flat]:
    """The preset with the pipeline's name, or ``defaults`` if there is none; and its settings."""
    for preset in pipeline_settings.presets():
        if preset.replace("_", "-") != pipeline:  # a pipeline's name has no underscore
            continue
        return preset, flat(pipeline_settings.recorded(pipeline_settings.load(preset)))
    return "defaults", default_settings()


def changed_settings(settings: Flat, base: Flat) -> Flat:
    """The settings that differ from ``base``, except the pipeline's name."""
    return {
        name: value
        for name, value in sorted(settings.items())
        if value != base.get(name) and name != "name"
    }


def flat(
    tree: Mapping[str, Any], model: type[BaseModel] = PipelineSettings, prefix: str = ""
) -> Flat:
    """A tree of settings under dotted names; a mapping that is one setting stays whole."""
    leaves: Flat = {}
    for name, value in tree.items():
        field = model.model_fields.get(name)
        kind = field.annotation if field else None
        if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, BaseModel):
            leaves |= flat(value, kind, f"{prefix}{name}.")
        else:
            leaves[prefix + name] = value
    return leaves


def _of_data(properties: Properties) -> Flat:
    settings = {
        f"data.{name}": properties[name] for name in DataSettings.model_fields if name in properties
    }
    dataset, _, label = str(properties.get("dataset", "")).partition("_")
    return settings | {"data.dataset": dataset, "data.label": label or "fine"}


def _of_training(properties: Properties) -> Flat:
    """ML Metadata has no property for a field that is None, and numbers for booleans."""
    settings, unset = {}, default_settings()
    for section, outer in TrainingSettings.model_fields.items():
        for name, field in outer.annotation.model_fields.items():  # type: ignore[union-attr]
            value = properties.get(f"{section}_{name}")
            if field.annotation is bool and value is not None:
                value = bool(value)
            if value is None and field.default in (None, (), {}):  # ML Metadata leaves it out
                settings[f"{section}.{name}"] = unset[f"{section}.{name}"]
            elif value is not None:
                settings[f"{section}.{name}"] = TrainingSettings.parsed(f"{section}_{name}", value)
    return settings
