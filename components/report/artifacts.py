"""The report's artifact types: KFP's own, which its user interface shows.

KFP defines the type names in sdk/python/kfp/dsl/types/artifact_types.py. Its user interface selects
a view by type name, and expects the report itself at the artifact's address, not a folder.
"""

from __future__ import annotations

import math
from typing import Any

from tfx.types import artifact

from stagecraft.components.report.report_data import Quality, Training
from stagecraft.trainer_module.training.record import metrics_of

REPORT, SUMMARY = "report.html", "summary.md"
FILE = "file"  # property: name of the one file in the artifact's folder


class HTML(artifact.Artifact):
    """``report.html``."""

    TYPE_NAME = "system.HTML"


class Markdown(artifact.Artifact):
    """``summary.md``, or ``model_card.md`` with ``model_card.json`` beside it."""

    TYPE_NAME = "system.Markdown"


class Metrics(artifact.Artifact):
    """Metrics, as properties."""

    TYPE_NAME = "system.Metrics"


class ClassificationMetrics(artifact.Artifact):
    """The confusion matrix, as the property ``confusionMatrix``."""

    TYPE_NAME = "system.ClassificationMetrics"


TYPES = (HTML, Markdown, Metrics, ClassificationMetrics)


def metrics(quality: Quality | None, training: Training | None) -> dict[str, float]:
    """Properties of ``Metrics``; only finite numbers, because JSON has no others."""
    values = dict(quality.metrics) if quality else {}
    if quality and quality.baseline is not None:
        values[f"last_blessed_{quality.monitor}"] = quality.baseline
    if training:
        record = training.record
        values |= {"steps": record["steps"], "images_per_second": record["images_per_second"]}
        if record["best"]:
            best = metrics_of(record["best"])
            values |= {f"val_{name}": value for name, value in best.items()}
        if training.timeline:
            values |= {"bubble_measured": training.timeline["idle"]}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def confusion_matrix(quality: Quality) -> dict[str, Any]:
    """The property ``confusionMatrix`` of ``ClassificationMetrics``; rows are actual classes."""
    return {
        "annotationSpecs": [{"displayName": each.name} for each in quality.classes],
        "rows": [{"row": row} for row in quality.confusion],
    }
