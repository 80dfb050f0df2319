"""Rules for Argo's template tags in texts of the pipeline.

The backend writes components, containers, tasks and platform settings as text into a Workflow, and
Argo replaces the tags ``{{…}}`` in it. Tags with one word, such as ``{{item}}``, stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Pipeline

_TAG = re.compile(r"\{\{([^{}]*)\}\}")
_EXPRESSION = re.compile(r"\{\{=(.*?)(?:\}\}|$)", re.DOTALL)
_UNRESOLVED = re.compile(r"(inputs|steps|tasks|pod|workflow)\.[\w.-]+")
_WORKFLOW = re.compile(
    r"workflow\.(name|namespace|mainEntrypoint|serviceAccountName|uid|parameters|annotations|labels"
    r"|creationTimestamp|priority|duration|scheduledTime|status|failures)(\..+)?"
)
"""https://argo-workflows.readthedocs.io/en/latest/variables/#global"""

_VALIDATE = "argoproj/argo-workflows workflow/validate/validate.go resolveAllVariables"
_REPLACE = "argoproj/argo-workflows util/template/template.go Replace"


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks all texts of the components and executors that the root reaches."""
    for component in pipeline.components.values():
        yield from check_texts(component.spec, component.location)
        for kind in ("container", "importer"):
            if value := getattr(component, kind):
                yield from check_texts(value, f"{component.executor_location}.{kind}")


def check_texts(value: Any, location: str) -> Iterator[Finding]:
    """Checks all texts in JSON.

    Args:
        value: JSON.
        location: its path in the document.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            yield from check_texts(item, f"{location}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from check_texts(item, f"{location}[{index}]")
    elif isinstance(value, str) and "{{" in value:
        yield from _text(value, location)


def _text(text: str, location: str) -> Iterator[Finding]:
    expressions = [match[0] for match in _EXPRESSION.finditer(text)]
    for expression in expressions:
        yield Finding(
            "argo-expression",
            location,
            f"Argo evaluates {expression!r}: the step gets the result, or the Workflow fails.",
            "Write it without {{=, for instance with a space between the braces.",
            _REPLACE,
        )
    for match in _TAG.finditer(text):
        tag = match[1].strip()
        if _WORKFLOW.fullmatch(tag):
            yield Finding(
                "argo-variable",
                location,
                f"Argo silently replaces {match[0]!r} with a value of the Workflow.",
                "Put a space between the braces, or remove the tag.",
                _REPLACE,
            )
        elif _UNRESOLVED.fullmatch(tag):
            yield Finding(
                "argo-tag",
                location,
                f"The run is refused: Argo takes {match[0]!r} for a variable and cannot resolve "
                "it.",
                "Put a space between the braces, or remove the tag.",
                _VALIDATE,
            )
