"""The page about a run that is over, made anew of what the run left."""

from __future__ import annotations

import pathlib

from tfx.orchestration.metadata import sqlite_metadata_connection_config

from stagecraft.components.report import history
from stagecraft.components.report.facts import Facts
from stagecraft.components.report.gather import gather
from stagecraft.pipeline.local import layout, nodes, outputs, runs
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


def facts(output: pathlib.Path, run_id: str | None = None) -> Facts:
    """What is known of a run, whole or not.

    Args:
        output: folder that ``stagecraft run --output`` wrote.
        run_id: of the run, or how it begins; None: the newest one.

    Raises:
        UserError: there is no such run, or there are several.
    """
    run = runs.choose(output, run_id)
    metadata_db = str(layout.metadata_db(output))
    found = outputs.of_run(Run(run.id, sqlite_metadata_connection_config(metadata_db)))
    given = {
        role: found[node][key][0]
        for role, (node, key) in _MADE_BY.items()
        if found.get(node, {}).get(key)
    }
    pipeline, settings = _named(metadata_db, run)
    return gather(
        given,
        pipeline=pipeline,
        run_id=run.id,
        metadata_db=metadata_db,
        settings=settings,
    )


def _named(metadata_db: str, run: runs.Found) -> tuple[str, str]:
    """The pipeline's name, and the settings that its report was told."""
    store = history.open_store(metadata_db)
    [pipeline] = store.get_parent_contexts_by_context(run.context)
    for execution in store.get_executions_by_context(run.context):
        if "settings" in execution.custom_properties:
            return pipeline.name, execution.custom_properties["settings"].string_value
    return pipeline.name, ""
