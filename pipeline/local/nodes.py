"""Names of the pipeline's nodes, known without importing TFX."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from stagecraft.schemas.errors import UserError

EXAMPLE_GEN = "Cifar10ExampleGen"

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
"""In the order in which they run."""

TRAINER = "Trainer"

BASELINE = "Baseline"
"""Resolves a model of an earlier run; makes nothing."""

PARITY_GATE = "ParityGate"
"""Comes before the Trainer where ``parity.enabled`` says so."""

REPORT = "TrainingReport"
"""Comes last, unless ``report.enabled`` says no."""


def names(*, parity: bool, report: bool = True) -> tuple[str, ...]:
    """All nodes of a pipeline, with the optional ones that it has."""
    before = NODES.index(TRAINER)
    found = (*NODES[:before], *([PARITY_GATE] if parity else []), *NODES[before:])
    return found if report else found[:-1]


def between(
    node: str, there: Sequence[str], from_node: str | None = None, to_node: str | None = None
) -> bool:
    """Whether a pipeline has a node, and a partial run of it does not leave it out.

    Args:
        node: its name.
        there: the pipeline's, in the order in which they run.
        from_node: where the run starts.
        to_node: what it stops after.
    """
    first = there.index(from_node) if from_node in there else 0
    last = there.index(to_node) if to_node in there else len(there) - 1
    return node in there[first : last + 1]


def check_order(from_node: str, to_node: str, there: Sequence[str]) -> None:
    """Refuses a partial run that would run nothing.

    Raises:
        UserError: it ends before it begins.
    """
    if there.index(to_node) < there.index(from_node):
        raise UserError(
            f"--to {to_node} comes before --from {from_node}: nothing would run; use --from "
            f"{to_node} --to {from_node}"
        )


def check(names: Iterable[str], known: Sequence[str] = NODES) -> None:
    """Refuses names that are no node's.

    Raises:
        UserError: names the nearest node, or all of them.
    """
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), [node.lower() for node in known], n=1)
            named = [node for node in known if node.lower() in near]
            hint = f"did you mean {named[0]}?" if named else f"there are {', '.join(known)}"
            raise UserError(f"there is no component {name!r} in this pipeline; {hint}")
