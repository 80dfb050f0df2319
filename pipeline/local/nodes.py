"""Names of the pipeline's nodes, known without importing TFX."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from stagecraft.schemas.errors import UserError

NODES = (
    "Cifar10ExampleGen",
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

PARITY_GATE = "ParityGate"
"""Comes before the Trainer where ``parity.enabled`` says so."""

REPORT = "TrainingReport"
"""Comes last, unless ``report.enabled`` says no."""


def names(*, parity: bool, report: bool = True) -> tuple[str, ...]:
    """All nodes of a pipeline, with the optional ones that it has."""
    before = NODES.index("Trainer")
    found = (*NODES[:before], *([PARITY_GATE] if parity else []), *NODES[before:])
    return found if report else found[:-1]


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
