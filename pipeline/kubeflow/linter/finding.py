"""A finding of the linter."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that the open-source Kubeflow Pipelines backend would refuse, drop or crash on."""

    rule: str
    location: str
    """Path in the document, such as ``root.dag.tasks.Trainer.inputs.parameters.x``."""

    problem: str
    """One sentence: what the backend would do, and why."""

    remedy: str
    """One sentence: what to change."""

    source: str
    """File and function from which the rule is ported; the path is in kubeflow/pipelines unless it
    names another repository."""

    def __str__(self) -> str:
        """The finding as one line."""
        return f"{self.location}: {self.problem} {self.remedy}"

    def json(self) -> dict[str, str]:
        """The finding in the JSON of ``stagecraft lint``."""
        return {
            "rule": self.rule,
            "where": self.location,
            "problem": self.problem,
            "remedy": self.remedy,
            "source": self.source,
        }


def refusal(name: str, findings: list[Finding]) -> str:
    """A message with all findings of a pipeline."""
    return "\n".join([f"{name}: Kubeflow Pipelines would not run this:", *map(str, findings)])
