"""The model card: model details, data, metrics and limitations.

Mitchell et al. 2019, "Model Cards for Model Reporting". The names of sections are those of Google's
Model Card Toolkit, except ``made_with``.
"""

from __future__ import annotations

import math
from typing import Any

import stagecraft
from stagecraft.components.evaluator.evaluation import EXAMPLE_COUNT
from stagecraft.components.report.pages import formats, sentences
from stagecraft.components.report.report_data import Quality, ReportData

JSON, MARKDOWN = "model_card.json", "model_card.md"

_WEAKEST = 3


def as_json(report: ReportData) -> dict[str, Any]:
    """The card. People add its intended use."""
    return {
        "model_details": {
            "name": report.pipeline,
            "overview": sentences.verdict(report),
            "version": {"name": report.pushed_version or "not pushed", "date": report.written},
        },
        "model_parameters": {
            "model_architecture": _architecture(report),
            "data": _data(report),
            "input_format": report.task.input_text,
            "output_format": report.task.output_text,
        },
        "quantitative_analysis": {
            "performance_metrics": _metrics(report.quality) if report.quality else []
        },
        "considerations": {
            "limitations": [{"description": sentence} for sentence in _limits(report)]
        },
        "made_with": _made_with(report),
    }


def _architecture(report: ReportData) -> str:
    if report.training is None:
        return "unknown"
    name = str(report.training.record["settings"]["train_model"])
    weights = report.training.parameters
    return name if weights is None else f"{name}, {formats.number(weights)} weights"


def _data(report: ReportData) -> list[dict[str, Any]]:
    if report.data is None:
        return []
    digest = {"sha256": report.data.fingerprint} if report.data.fingerprint else {}
    description = sentences.data_text(report)
    return [{"name": report.data.source, "description": description, **digest}]


def _metrics(quality: Quality) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    weighted = ", weighted" if quality.is_weighted else ""
    for name, value in quality.metrics.items():
        where = "the split eval" + (weighted if name != EXAMPLE_COUNT else "")
        metric: dict[str, Any] = {"type": name, "value": _value(value), "slice": where}
        if name == quality.monitor and quality.interval:
            lower, upper = quality.interval
            bounds = {"lower_bound": f"{lower:.4f}", "upper_bound": f"{upper:.4f}"}
            metric["confidence_interval"] = bounds
        found.append(metric)
    for each in quality.classes:
        for name, share in (("recall", each.recall), ("precision", each.precision)):
            if share is not None:
                found.append({"type": name, "value": f"{share:.4f}", "slice": each.name})
    for part in quality.slices:
        for name, value in part.metrics.items():
            where = f"{part.feature} {part.value}" + (weighted if name != EXAMPLE_COUNT else "")
            found.append({"type": name, "value": _value(value), "slice": where})
    return found


def _value(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.6g}"


def _limits(report: ReportData) -> list[str]:
    quality = report.quality
    if quality is None:
        return ["The model was not evaluated."]
    count, noun = formats.number(quality.metrics["example_count"]), report.task.noun
    found = [
        f"Evaluated on {count} {noun} of the data set that the model was trained on, and on no "
        f"other {noun}."
    ]
    if worst := sentences.worst_slice(report):
        found.append(worst)
    return found + _limits_of_classes(quality) if quality.classes else found


def _limits_of_classes(quality: Quality) -> list[str]:
    with_recall = [each for each in quality.classes if each.recall is not None]
    weakest = sorted(with_recall, key=lambda each: each.recall or 0.0)[:_WEAKEST]
    named = ", ".join(f"{each.name} ({formats.percent(each.recall)})" for each in weakest)
    found = [f"Lowest recall: {named}.", sentences.most_confused(quality)]
    if "expected_calibration_error" in quality.metrics:
        error = formats.percent(quality.metrics["expected_calibration_error"])
        found.append(f"Expected calibration error: {error}.")
    return found


def _made_with(report: ReportData) -> dict[str, str]:
    found = {"run": report.run_id} if report.run_id else {}
    if report.training:
        found["topology"] = sentences.topology(report.training.record, report.task.noun)
        found["training"] = sentences.trained(report.training, report.task.noun)
    found |= report.versions | {"stagecraft": stagecraft.__version__}
    code = report.code_fingerprint
    return found | ({"code fingerprint": code} if code else {})
