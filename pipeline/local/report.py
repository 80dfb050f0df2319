"""The page about a run that is over, made anew of what the run left."""

from __future__ import annotations

import pathlib

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration.metadata import sqlite_metadata_connection_config

from stagecraft.components.report import history
from stagecraft.components.report.facts import Facts
from stagecraft.components.report.gather import gather
from stagecraft.pipeline.local import layout, nodes, outputs
from stagecraft.pipeline.local.runners import Run
from stagecraft.schemas.errors import UserError

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

_NAMED = 5
"""Runs that a refusal names."""


def facts(output: pathlib.Path, run_id: str | None = None) -> Facts:
    """What is known of a run, whole or not.

    Args:
        output: folder that ``stagecraft run --output`` wrote.
        run_id: of the run; None: the newest one.

    Raises:
        UserError: there is no such run.
    """
    metadata_db = layout.metadata_db(output)
    if not metadata_db.exists():
        raise UserError(
            f"{output}: no run left anything here (there is no {metadata_db.name}); give the "
            "folder that stagecraft run wrote, such as runs/quickstart"
        )
    run = _run(metadata_db, run_id, output)
    found = outputs.of_run(Run(run.name, sqlite_metadata_connection_config(str(metadata_db))))
    given = {
        role: found[node][key][0]
        for role, (node, key) in _MADE_BY.items()
        if found.get(node, {}).get(key)
    }
    pipeline, settings = _named(metadata_db, run)
    return gather(
        given,
        pipeline=pipeline,
        run_id=run.name,
        metadata_db=str(metadata_db),
        settings=settings,
    )


def _run(
    metadata_db: pathlib.Path, run_id: str | None, output: pathlib.Path
) -> metadata_store_pb2.Context:
    store = history.open_store(str(metadata_db))
    runs = sorted(store.get_contexts_by_type("pipeline_run"), key=lambda run: -run.id)
    if not runs:
        raise UserError(f"{output}: no run has begun here; run stagecraft run first")
    wanted = [run for run in runs if run_id in (None, run.name)]
    if not wanted:
        newest = ", ".join(run.name for run in runs[:_NAMED])
        raise UserError(f"{output}: there is no run {run_id}; the newest are {newest}")
    return wanted[0]


def _named(metadata_db: pathlib.Path, run: metadata_store_pb2.Context) -> tuple[str, str]:
    """The pipeline's name, and the settings that its report was told."""
    store = history.open_store(str(metadata_db))
    [pipeline] = store.get_parent_contexts_by_context(run.id)
    for execution in store.get_executions_by_context(run.id):
        if "settings" in execution.custom_properties:
            return pipeline.name, execution.custom_properties["settings"].string_value
    return pipeline.name, ""
