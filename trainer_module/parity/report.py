"""The results of a parity check, for programs and for people. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import html
from typing import Any

from stagecraft.common.text import columns
from stagecraft.trainer_module.parity.criteria import DRIFT, GRADIENTS, TRAJECTORY, Finding

HEADER = (
    "topology",
    "reference",
    "gradients, of tolerance",
    "float64 weights",
    "drift",
    "float32 weights",
    "seconds",
    "verdict",
)

_NAMED = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A topology, compared with one device."""

    topology: str
    reference: str
    findings: tuple[Finding, ...] = ()
    """The worst finding of each criterion that applies."""
    trajectory: float | None = None
    """Largest difference of a weight after a trajectory in the training's own precision;
    informative, not judged."""
    float32: tuple[str, ...] = ()
    """Layers and variables that stay float32 in the float64 trajectory."""
    random: tuple[str, ...] = ()
    """Notes on the model's random layers for the user, in sentences."""
    precision: str = "float32"
    seconds: float = 0.0
    cause: str | None = None
    """Why there are no numbers; None: there are."""

    @property
    def equal(self) -> bool:
        """Whether the topology computes what one device computes."""
        return self.cause is None and all(finding.equal for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One word: equal, differs, or failed if there are no numbers."""
        return "equal" if self.equal else "failed" if self.cause is not None else "differs"

    @property
    def reason(self) -> str:
        """Why the topology is not equal, in a sentence; empty if it is."""
        if self.cause is not None:
            return self.cause
        return "; ".join(str(finding) for finding in self.findings if not finding.equal)

    @property
    def note(self) -> str:
        """The limit of the comparison, in a sentence; empty if there is none."""
        return "; ".join(each for each in (self._about_float32(), *self.random) if each)

    def _about_float32(self) -> str:
        if not self.float32:
            return ""
        names = ", ".join(self.float32[:_NAMED])
        more = f" and {len(self.float32) - _NAMED} more" if len(self.float32) > _NAMED else ""
        return (
            f"the model computes in float32 in {names}{more}, so its float64 trajectory is "
            "compared with a tolerance for float32"
        )

    def _of(self, criterion: str) -> Finding | None:
        return next((found for found in self.findings if found.criterion == criterion), None)

    def cells(self) -> tuple[str, ...]:
        """The cells of the row, in the order of :data:`HEADER`."""
        gradients, exact, drift = map(self._of, (GRADIENTS, TRAJECTORY, DRIFT))
        own = "" if self.precision == "float32" else f" ({self.precision})"
        return (
            self.topology,
            self.reference,
            "–" if gradients is None else f"{gradients.ratio:.2g}",
            "–" if exact is None else f"{exact.difference:.1e}",
            "–"
            if drift is None
            else "none"
            if drift.equal
            else f"{drift.difference:.0f} variables",
            "–" if self.trajectory is None else f"{self.trajectory:.1e}{own}",
            f"{self.seconds:.0f}",
            self.verdict,
        )

    def as_json(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            "topology": self.topology,
            "reference": self.reference,
            "equal": self.equal,
            "precision": self.precision,
            "trajectory_difference": self.trajectory,
            "float32_in_float64": list(self.float32),
            "random": list(self.random),
            "seconds": round(self.seconds, 2),
            "findings": [
                dataclasses.asdict(finding) | {"ratio": finding.ratio} for finding in self.findings
            ],
            **({} if self.equal else {"error": self.reason}),
        }


@dataclasses.dataclass(frozen=True, repr=False)
class ParityReport:
    """The comparison of topologies with one device; true if all compute the same."""

    rows: tuple[Row, ...]
    """A row for each topology: differences, tolerances, verdict."""

    def __bool__(self) -> bool:
        return all(row.equal for row in self.rows)

    @property
    def remarks(self) -> list[str]:
        """Reasons for differences, then limits of comparisons, each with its topology."""
        reasons = [f"{row.topology}: {row.reason}" for row in self.rows if not row.equal]
        return [*reasons, *(f"{row.topology}: {row.note}" for row in self.rows if row.note)]

    def table(self) -> str:
        """The rows in columns."""
        return columns([HEADER, *(row.cells() for row in self.rows)])

    def __str__(self) -> str:
        return "\n".join([self.table(), *self.remarks])

    __repr__ = __str__

    def markdown(self) -> str:
        """The table, then the remarks as a list."""
        lines = [HEADER, ("---",) * len(HEADER), *(row.cells() for row in self.rows)]
        table = [f"| {' | '.join(line)} |" for line in lines]
        remarks = [f"* {each}" for each in self.remarks]
        return "\n".join([*table, *([""] if remarks else []), *remarks]) + "\n"

    def _repr_html_(self) -> str:
        """The table and the remarks for notebooks."""
        lines = [HEADER, *(row.cells() for row in self.rows)]
        rows = "".join(
            f"<tr>{''.join(f'<{kind}>{html.escape(cell)}</{kind}>' for cell in line)}</tr>"
            for kind, line in zip(["th", *["td"] * len(self.rows)], lines, strict=True)
        )
        remarks = "".join(f"<p>{html.escape(each)}</p>" for each in self.remarks)
        return f"<table>{rows}</table>{remarks}"
