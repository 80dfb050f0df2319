"""Rules for conditions of tasks: CEL expressions over the task's inputs.

A scanner, not a parser: it finds unknown names, inputs that the task does not have, and unbalanced
brackets. It does not check what depends on values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.pipeline import Pipeline, Task

_SOURCE = "backend/src/v2/expression/expression.go Condition"
TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>[rR](?:"[^"]*"|'[^']*')|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
        |(?P<number>0[xX][0-9a-fA-F]+[uU]?|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?[uU]?)
        |(?P<name>[A-Za-z_]\w*)
        |(?P<sign>&&|\|\||[=!<>]=|[-+*/%!<>?:.,()\[\]{}])
    )""",
    re.VERBOSE,
)
"""A token of CEL."""

MACROS = {"all", "exists", "exists_one", "filter", "map"}
"""Names of CEL's macros over lists and maps."""

_NAMES = {"inputs", "outputs", "parseJson", "has", "in", "true", "false", "null", "size"}
_NAMES |= {"int", "uint", "double", "string", "bool", "bytes", "type", "dyn", "list"}
_NAMES |= {"duration", "timestamp", "matches"}
_FIELDS = {"parameter_values", "artifacts"}
_INPUT = re.compile(r"\binputs\.(\w+)(?:\[(?:'([^']*)'|\"([^\"]*)\")\])?")
_ARTIFACT = re.compile(r"\]\.artifacts\[\d+\]\.(\w+)")
_ARTIFACT_FIELDS = {"name", "type", "uri", "properties", "custom_properties", "metadata"}
_CLOSING = {")": "(", "]": "[", "}": "{"}


def check(pipeline: Pipeline) -> Iterator[Finding]:
    """Checks the conditions of all tasks."""
    for task in pipeline.tasks:
        if task.condition and (problem := _problem(task, task.condition)):
            yield Finding(
                "condition",
                f"{task.location}.triggerPolicy.condition",
                f"The driver of the task fails: {problem}.",
                "Use inputs.parameter_values['x'] and inputs.artifacts['x'].artifacts[0] of inputs "
                "that the task has.",
                _SOURCE,
            )


def _problem(task: Task, condition: str) -> str:
    names, problem = _scan(condition)
    if problem:
        return problem
    if not names & MACROS and (unknown := names - _NAMES):
        return f"CEL has no {min(unknown)!r}"
    for field, single, double in _INPUT.findall(condition):
        key = single or double
        if field not in _FIELDS:
            return f"inputs.{field} does not exist (inputs has {' and '.join(sorted(_FIELDS))})"
        kind = "artifacts" if field == "artifacts" else "parameters"
        if key and key not in task.inputs(kind):
            return f"the task gets no {kind.removesuffix('s')} {key!r}"
    for field in _ARTIFACT.findall(condition):
        if field not in _ARTIFACT_FIELDS:
            return f"an artifact has no field {field!r}"
    return ""


def _scan(condition: str) -> tuple[set[str], str]:
    """Names that are neither fields nor methods; and a syntax error, or nothing."""
    names: set[str] = set()
    opened: list[str] = []
    position, before = 0, ""
    condition = condition.rstrip()
    while position < len(condition):
        token = TOKEN.match(condition, position)
        if token is None:
            return names, f"CEL cannot parse {condition[position:].strip()[:20]!r}"
        sign = token["sign"] or ""
        name = token["name"]
        if name and (before != "." or name in MACROS):
            names.add(name)
        elif sign and sign in "([{":
            opened.append(sign)
        elif sign in _CLOSING and (not opened or opened.pop() != _CLOSING[sign]):
            return names, f"{sign!r} closes nothing"
        position, before = token.end(), sign
    return names, f"{opened[-1]!r} is not closed" if opened else ""
