"""The page about a run that is over, made anew of what the run left."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.types import Artifact

from stagecraft.components.metadata.run_metadata import RunMetadata
from stagecraft.components.metadata.run_notes import Notes
from stagecraft.components.report.collect import collect
from stagecraft.components.report.report_data import ReportData
from stagecraft.pipeline.history import past_run, runs
from stagecraft.pipeline.local import layout, nodes, outputs
from stagecraft.pipeline.local.runners import Run

_MADE_BY = {
    "examples": ("Cifar10ExampleGen", "examples"),
    "statistics": ("StatisticsGen", "statistics"),
    "schema": ("ImportSchema", "schema"),
    "anomalies": ("AnomalyGate", "anomalies"),
    "transform_graph": ("Transform", "transform_graph"),
    "parity": (nodes.PARITY_GATE, "report"),
    "model": ("Trainer", "model"),
    "model_run": ("Trainer", "model_run"),
    "evaluation": ("Evaluator", "evaluation"),
    "blessing": ("Evaluator", "blessing"),
    "pushed_model": ("Pusher", "pushed_model"),
}
"""Role in a run -> the node, and its output."""

_TYPES = {
    "examples": "Examples",
    "statistics": "ExampleStatistics",
    "schema": "Schema",
    "anomalies": "ExampleAnomalies",
    "transform_graph": "TransformGraph",
    "model": "Model",
    "model_run": "ModelRun",
    "evaluation": "ModelEvaluation",
    "blessing": "ModelBlessing",
    "pushed_model": "PushedModel",
}
"""Role in a run -> the type that has it, in a pipeline whose nodes have names of their own."""

_BEGINNING = 1 << 18
"""Characters of a log in which the run says its ID."""


def report_data(run: runs.Found) -> ReportData:
    """What is known of a run, whole or not."""
    metadata_db = str(layout.metadata_db(run.output))
    found = outputs.of_run(Run(run.id, sqlite_metadata_connection_config(metadata_db)))
    given = {
        role: found[node][key][0]
        for role, (node, key) in _MADE_BY.items()
        if found.get(node, {}).get(key)
    }
    given = _by_type(found) | given
    recorded = RunMetadata.open(metadata_db, run.id)
    notes = recorded.notes if recorded else Notes()
    collected = collect(
        given,
        pipeline=recorded.pipeline if recorded else "",
        run_id=run.id,
        settings=_settings(recorded) or notes.settings,
    )
    data = collected.data
    if data and not data.source:  # an ExampleGen that does not note it
        data = dataclasses.replace(data, source=os.path.basename(past_run.read(run).source))
    return dataclasses.replace(
        collected,
        data=data,
        components=past_run.components(run),
        command=notes.command,
        log=_log(run),
    )


def _by_type(found: Mapping[str, Mapping[str, Sequence[Artifact]]]) -> dict[str, Artifact]:
    """The run's first output of each type; a resolver's are of earlier runs."""
    made: dict[str, Artifact] = {}
    outputs_by_id = sorted(
        (
            artifact
            for node, keys in found.items()
            if node != nodes.BASELINE
            for artifacts in keys.values()
            for artifact in artifacts
        ),
        key=lambda artifact: -int(artifact.id),
    )
    for artifact in outputs_by_id:
        made[artifact.type_name] = artifact
    return {role: made[kind] for role, kind in _TYPES.items() if kind in made}


def _log(run: runs.Found) -> str:
    """The file that a run of ``stagecraft run`` wrote to; empty for one of another program."""
    folder = layout.logs(run.output)
    names = sorted(folder.glob("*.log"), reverse=True) if folder.is_dir() else []
    for path in names:
        with open(path, encoding="utf-8", errors="replace") as file:
            if run.id in file.read(_BEGINNING):
                return str(path)
    return ""


def _settings(recorded: RunMetadata | None) -> str:
    """The settings that the pipeline passed to its TrainingReport; empty without one."""
    for execution in recorded.executions if recorded else ():
        if "settings" in execution.custom_properties:
            return str(execution.custom_properties["settings"].string_value)
    return ""
