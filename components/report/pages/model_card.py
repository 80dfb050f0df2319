"""The model card: what a model is, what it was made of, how good it is and where it is not.

Mitchell et al. 2019, "Model Cards for Model Reporting". The sections have the names that Google's
Model Card Toolkit gave them; ``made_with`` is ours.
"""

from __future__ import annotations

from typing import Any

from stagecraft.components.report.facts import Facts, Quality
from stagecraft.components.report.pages import wording
from stagecraft.schemas import features

JSON, MARKDOWN = "model_card.json", "model_card.md"

_WEAKEST = 3


def as_json(facts: Facts) -> dict[str, Any]:
    """The card. Who the model is for, and who not, is for people to say."""
    return {
        "model_details": {
            "name": facts.pipeline,
            "overview": wording.verdict(facts),
            "version": {"name": facts.pushed_version or "not pushed", "date": facts.written},
        },
        "model_parameters": {
            "model_architecture": _architecture(facts),
            "data": _data(facts),
            "input_format": f"uint8 pictures {list(features.IMAGE_SHAPE)}, or tf.Examples of them",
            "output_format": f"one of {len(facts.class_names)} classes: "
            f"{', '.join(facts.class_names)}",
        },
        "quantitative_analysis": {
            "performance_metrics": _metrics(facts.quality) if facts.quality else []
        },
        "considerations": {
            "limitations": [{"description": sentence} for sentence in _limits(facts)]
        },
        "made_with": _made_with(facts),
    }


def _architecture(facts: Facts) -> str:
    if facts.training is None:
        return "not known"
    name = str(facts.training.record["settings"]["train_model"])
    weights = facts.training.parameters
    return name if weights is None else f"{name}, {wording.number(weights)} weights"


def _data(facts: Facts) -> list[dict[str, Any]]:
    if facts.data is None:
        return []
    return [
        {
            "name": facts.data.source,
            "description": wording.data_text(facts),
            **({"sha256": facts.data.fingerprint} if facts.data.fingerprint else {}),
        }
    ]


def _metrics(quality: Quality) -> list[dict[str, Any]]:
    everything = "the split eval"
    lower, upper = quality.interval
    found: list[dict[str, Any]] = []
    for name, value in quality.metrics.items():
        metric: dict[str, Any] = {"type": name, "value": f"{value:.6g}", "slice": everything}
        if name == "accuracy":
            metric["confidence_interval"] = {
                "lower_bound": f"{lower:.4f}",
                "upper_bound": f"{upper:.4f}",
            }
        found.append(metric)
    for each in quality.classes:
        for name, share in (("recall", each.recall), ("precision", each.precision)):
            if share is not None:
                found.append({"type": name, "value": f"{share:.4f}", "slice": each.name})
    return found


def _limits(facts: Facts) -> list[str]:
    quality = facts.quality
    if quality is None:
        return ["It was not evaluated."]
    found = [
        f"Measured on {wording.number(quality.metrics['example_count'])} pictures of the same data "
        "set as the training's; other pictures were not tried."
    ]
    known = [each for each in quality.classes if each.recall is not None]
    weakest = sorted(known, key=lambda each: each.recall or 0.0)[:_WEAKEST]
    named = ", ".join(f"{each.name} ({wording.percent(each.recall)})" for each in weakest)
    found.append(f"It finds these classes least often: {named}.")
    found.append(wording.confused(quality))
    if "expected_calibration_error" in quality.metrics:
        error = wording.percent(quality.metrics["expected_calibration_error"])
        found.append(f"Its probabilities are {error} off on average (expected calibration error).")
    return found


def _made_with(facts: Facts) -> dict[str, str]:
    found = {"run": facts.run_id} if facts.run_id else {}
    if facts.training:
        found["topology"] = wording.topology(facts.training.record)
        found["training"] = wording.learned(facts.training)
    found |= facts.versions | {"stagecraft": wording.version()}
    for item in facts.lineage:
        if "code_fingerprint" in item.properties:
            found["code fingerprint"] = item.properties["code_fingerprint"]
    return found
