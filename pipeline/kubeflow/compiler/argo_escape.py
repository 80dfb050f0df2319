"""Escapes Argo's template tags ``{{…}}`` in parameters: steps get them as they were written.

The backend writes constants into an Argo Workflow, and Argo replaces or refuses some tags in it.
The steps of this project's entrypoint undo the escape.
"""

from __future__ import annotations

import json

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.linter.rules import argo_tags


def escape(spec: specs.Json) -> None:
    """Writes the constants in which Argo would replace or refuse a tag as JSON without tags."""
    for step in specs.steps(spec):
        if not specs.is_ours(step):
            continue
        for source in step.task.get("inputs", {}).get("parameters", {}).values():
            value = source.get("runtimeValue", {}).get("constant")
            if isinstance(value, str) and any(argo_tags.check_texts(value, "")):
                text = json.dumps(value).replace("{{", "{\\u007b")
                source["runtimeValue"]["constant"] = f"{specs.ESCAPED}{text}"
