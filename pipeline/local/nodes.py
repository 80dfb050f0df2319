"""The pipeline's nodes: one table. Imports no TFX.

:mod:`stagecraft.pipeline.pipeline` connects the components; a row says when a node is part of a
pipeline, and which of its artifacts the report is about. ``summary.FIGURES`` has the figure that a
run shows of a node.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.pipeline.settings.data import ANY_EXAMPLE_GEN, EXAMPLE_GEN

TRAINER = "Trainer"

BASELINE = "Baseline"
"""Resolves a model of an earlier run; has no output of its own."""

BASE_MODEL = "BaseModel"
"""Resolves the model of an earlier run that the Trainer continues; has no output of its own."""

LAST_STATISTICS = "LastStatistics"
"""Resolves the statistics of an earlier run for AnomalyGate; has no output of its own."""

SCHEMA_GEN = "SchemaGen"

WINDOW = "Window"
"""Resolves examples of earlier runs."""


class Node(NamedTuple):
    """A node of the pipeline."""

    id: str
    artifacts: Mapping[str, tuple[str, str]] = {}
    """Role in the report -> output key; and artifact type, for pipelines with other nodes."""
    runs: Callable[[PipelineSettings], bool] = lambda settings: True
    """Whether the pipeline of some settings has it."""


def _reads_cifar(settings: PipelineSettings) -> bool:
    return settings.data.generator(settings.task.found) == "cifar"


TABLE = (
    Node(EXAMPLE_GEN, {"examples": ("examples", "Examples")}, _reads_cifar),
    Node(
        ANY_EXAMPLE_GEN,
        {"examples": ("examples", "Examples")},
        lambda settings: not _reads_cifar(settings),
    ),
    Node(
        "ImportSchema",
        {"schema": ("schema", "Schema")},
        lambda settings: not settings.data.infer_schema,
    ),
    Node("StatisticsGen", {"statistics": ("statistics", "ExampleStatistics")}),
    Node(SCHEMA_GEN, {"schema": ("schema", "Schema")}, lambda settings: settings.data.infer_schema),
    Node(LAST_STATISTICS, runs=lambda settings: settings.drift.looks_back),
    Node("AnomalyGate", {"anomalies": ("anomalies", "ExampleAnomalies")}),
    Node(WINDOW, runs=lambda settings: settings.data.window > 1),
    Node("Transform", {"transform_graph": ("transform_graph", "TransformGraph")}),
    Node("ParityGate", {"parity": ("report", "")}, lambda settings: settings.parity.enabled),
    Node(BASE_MODEL, runs=lambda settings: settings.train.base_model is not None),
    Node(TRAINER, {"model": ("model", "Model"), "model_run": ("model_run", "ModelRun")}),
    Node(BASELINE),
    Node(
        "Evaluator",
        {
            "evaluation": ("evaluation", "ModelEvaluation"),
            "blessing": ("blessing", "ModelBlessing"),
        },
    ),
    Node("Pusher", {"pushed_model": ("pushed_model", "PushedModel")}),
    Node("TrainingReport", runs=lambda settings: settings.report.enabled),
)
"""All nodes in the order in which they run."""


def of(settings: PipelineSettings) -> tuple[str, ...]:
    """All nodes of the pipeline of some settings."""
    return tuple(node.id for node in TABLE if node.runs(settings))


@functools.cache
def by_default() -> tuple[str, ...]:
    """All nodes of a pipeline without settings."""
    return of(PipelineSettings())


def example_gen(known: Container[str]) -> str | None:
    """The node of a pipeline that makes the examples; None if none does."""
    return next((node for node in (EXAMPLE_GEN, ANY_EXAMPLE_GEN) if node in known), None)


def between(
    node: str, known: Sequence[str], from_node: str | None = None, to_node: str | None = None
) -> bool:
    """Whether a partial run of a pipeline (``known``, in execution order) runs a node."""
    first = known.index(from_node) if from_node in known else 0
    last = known.index(to_node) if to_node in known else len(known) - 1
    return node in known[first : last + 1]


def check_order(from_node: str, to_node: str, known: Sequence[str]) -> None:
    """Refuses a partial run that would run nothing."""
    if known.index(to_node) < known.index(from_node):
        use = f"--from {to_node} --to {from_node}"
        raise UserError(
            f"--to {to_node} comes before --from {from_node}: nothing would run; use {use}",
            setting="--to",
            value=to_node,
            suggestion=use,
        )


def check(names: Iterable[str], known: Sequence[str]) -> None:
    """Refuses names that no node has."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), [node.lower() for node in known], n=1)
            nearest = next((node for node in known if node.lower() in near), "")
            hint = f"did you mean {nearest}?" if nearest else f"use one of {', '.join(known)}"
            raise UserError(
                f"there is no component {name!r} in this pipeline; {hint}",
                value=name,
                suggestion=nearest,
            )
