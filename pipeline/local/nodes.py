"""Names of the pipeline's nodes. Imports no TFX."""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterable, Sequence

from stagecraft.common.errors import UserError
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.pipeline.settings.data import ANY_EXAMPLE_GEN, EXAMPLE_GEN

NODES = (
    EXAMPLE_GEN,
    "ImportSchema",
    "StatisticsGen",
    "AnomalyGate",
    "Transform",
    "Trainer",
    "Baseline",
    "Evaluator",
    "Pusher",
    "TrainingReport",
)

TRAINER = "Trainer"

BASELINE = "Baseline"
"""Resolves a model of an earlier run; has no output of its own."""

PARITY_GATE = "ParityGate"
"""Runs before the Trainer if ``parity.enabled``."""

REPORT = "TrainingReport"
"""Runs last, unless ``report.enabled`` is false."""

SCHEMA_GEN = "SchemaGen"
"""Instead of ImportSchema if ``data.infer_schema``."""


def names(
    *, parity: bool, report: bool = True, cifar: bool = True, infer_schema: bool = False
) -> tuple[str, ...]:
    """All nodes of a pipeline, with its optional nodes."""
    own = (
        (EXAMPLE_GEN if cifar else ANY_EXAMPLE_GEN),
        *(("StatisticsGen", SCHEMA_GEN) if infer_schema else ("ImportSchema", "StatisticsGen")),
        *NODES[3:],
    )
    before = own.index(TRAINER)
    gate = (PARITY_GATE,) if parity else ()
    return (*own[:before], *gate, *own[before : None if report else -1])


def of(settings: PipelineSettings) -> tuple[str, ...]:
    """All nodes of the pipeline of some settings."""
    return names(
        parity=settings.parity.enabled,
        report=settings.report.enabled,
        cifar=settings.data.generator(settings.task.found) == "cifar",
        infer_schema=settings.data.infer_schema,
    )


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


def check(names: Iterable[str], known: Sequence[str] = NODES) -> None:
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
