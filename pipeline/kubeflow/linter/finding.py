"""What an acceptance check says of a file."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that the open-source Kubeflow Pipelines backend would refuse, drop or crash on."""

    rule: str
    """Short name in kebab case; the same for every finding of one kind."""

    where: str
    """Path in the document, such as ``root.dag.tasks.Trainer.inputs.parameters.x``."""

    problem: str
    """One sentence: what the backend would do, and why."""

    remedy: str
    """One sentence: what to change."""

    source: str
    """The file (a path within kubeflow/pipelines, if nothing else is said) and the function that
    the rule was read from."""
