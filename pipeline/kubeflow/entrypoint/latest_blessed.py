"""The step in place of a resolver: looks up the newest blessed model."""

from __future__ import annotations

import json
import logging

from stagecraft.pipeline.kubeflow.entrypoint import blessed_models
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.spec import LOOKUP


def look_up(invocation: Invocation, pipeline: str, output_types: dict[str, str]) -> None:
    """Writes an address and properties, or nothing, for each output; input models are skipped."""
    candidates = {artifact["uri"] for artifact in invocation.artifacts("inputs").values()}
    found = blessed_models.latest(pipeline, candidates)
    values = {
        name: json.dumps(found[kind], sort_keys=True) if kind in found else ""
        for name, kind in output_types.items()
    }
    text = {name: json.loads(value)["uri"] if value else "none" for name, value in values.items()}
    invocation.write(
        {
            "parameterValues": values,
            "artifacts": {LOOKUP: {"artifacts": [{"name": LOOKUP, "metadata": text}]}},
        }
    )
    for name, value in text.items():
        logging.info("%s: %s", name, value)
