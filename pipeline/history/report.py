"""Gathers the facts for the report about a past run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from tfx.orchestration.metadata import sqlite_metadata_connection_config
from tfx.types import Artifact

from stagecraft.components.example_gen import spans
from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.run import Run
from stagecraft.components.metadata.run_metadata import Notes, RunMetadata
from stagecraft.components.report.collect import collect
from stagecraft.components.report.report_data import ReportData
from stagecraft.pipeline.history import past_run, runs
from stagecraft.pipeline.local import layout, nodes

_BEGINNING = 1 << 18
"""Characters at the beginning of a log; they hold the run's ID."""


def report_data(run: runs.RecordedRun) -> ReportData:
    """The data about a run, complete or not.

    Raises:
        DamagedArtifactError: an artifact is damaged. A folder that is gone or empty is no damage:
            somebody made room.
    """
    metadata_db = str(layout.metadata_db(run.output))
    outputs = Run(run.id, sqlite_metadata_connection_config(metadata_db)).outputs()
    artifacts = {
        role: outputs[node.id][key][0]
        for node in reversed(nodes.TABLE)
        for role, (key, _) in node.artifacts.items()
        if outputs.get(node.id, {}).get(key)
    }
    artifacts = _by_type(outputs) | artifacts
    for artifact in artifacts.values():
        _check(artifact)
    recorded = RunMetadata.open(metadata_db, run.id)
    notes = recorded.notes if recorded else Notes()
    collected = collect(
        artifacts,
        pipeline=recorded.pipeline if recorded else "",
        run_id=run.id,
        metadata_db=metadata_db,
        settings=_settings(recorded) or notes.settings,
    )
    data = collected.data
    if data and not data.source:  # an ExampleGen that does not record it
        source = past_run.read(run).source
        source = spans.base(source) if spans.has(source) else source
        data = dataclasses.replace(data, source=os.path.basename(source))
    return dataclasses.replace(
        collected,
        data=data,
        components=past_run.components(run, recorded),
        command=notes.command,
        log=_log(run),
    )


def _check(artifact: Artifact) -> None:
    damages = [
        each
        for each in manifest.damages_of(artifact)
        if each.found is not None or _has_files(os.path.dirname(each.path(artifact.uri)))
    ]
    if damages:
        remedy = "A report would not be of the run. Restore the file, or remove its folder."
        raise manifest.DamagedArtifactError(artifact.uri, artifact.type_name, damages, remedy)


def _has_files(folder: str) -> bool:
    return os.path.isdir(folder) and bool(os.listdir(folder))


def _by_type(outputs: Mapping[str, Mapping[str, Sequence[Artifact]]]) -> dict[str, Artifact]:
    """The run's first artifact of each type; those of a resolver belong to earlier runs."""
    first: dict[str, Artifact] = {}
    newest_first = sorted(
        (
            artifact
            for node, keys in outputs.items()
            if node != nodes.BASELINE
            for artifacts in keys.values()
            for artifact in artifacts
        ),
        key=lambda artifact: -int(artifact.id),
    )
    for artifact in newest_first:
        first[artifact.type_name] = artifact
    return {
        role: first[kind]
        for node in nodes.TABLE
        for role, (_, kind) in node.artifacts.items()
        if kind in first
    }


def _log(run: runs.RecordedRun) -> str:
    """The log of a run of ``stagecraft run``; empty for a run of another program."""
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
