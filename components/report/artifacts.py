"""The report's artifact types: KFP's own, which its user interface shows, and the model card.

KFP names them in sdk/python/kfp/dsl/types/artifact_types.py; its user interface goes by the name,
and looks for a page at the artifact's address itself, not in a folder there.
"""

from __future__ import annotations

import math
from typing import Any

from tfx.types import artifact

from stagecraft.components.report.facts import Quality, Training

REPORT, SUMMARY = "report.html", "summary.md"

FILE = "file"
"""Property: name of the one file in the artifact's folder."""


class HTML(artifact.Artifact):
    """``report.html``."""

    TYPE_NAME = "system.HTML"


class Markdown(artifact.Artifact):
    """``summary.md``."""

    TYPE_NAME = "system.Markdown"


class Metrics(artifact.Artifact):
    """Figures, as properties."""

    TYPE_NAME = "system.Metrics"


class ClassificationMetrics(artifact.Artifact):
    """The confusion matrix, as the property ``confusionMatrix``."""

    TYPE_NAME = "system.ClassificationMetrics"


class ModelCard(artifact.Artifact):
    """``model_card.json`` and ``model_card.md``."""

    TYPE_NAME = "stagecraft.ModelCard"


TYPES = (HTML, Markdown, Metrics, ClassificationMetrics, ModelCard)


def figures(quality: Quality | None, training: Training | None) -> dict[str, float]:
    """What goes into ``Metrics``: JSON has no word for what is not finite."""
    found = dict(quality.metrics) if quality else {}
    if quality and quality.baseline is not None:
        found["last_blessed_accuracy"] = quality.baseline
    if training:
        record = training.record
        found |= {"steps": record["steps"], "images_per_second": record["images_per_second"]}
        if record["best"]:
            found["val_accuracy"] = record["best"]["accuracy"]
        if training.timeline:
            found |= {"bubble_measured": training.timeline["idle"]}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def confusion_matrix(quality: Quality) -> dict[str, Any]:
    """What goes into ``ClassificationMetrics``: rows are what the examples are."""
    return {
        "annotationSpecs": [{"displayName": each.name} for each in quality.classes],
        "rows": [{"row": row} for row in quality.confusion],
    }
