"""Numbers as a report writes them."""

from __future__ import annotations

import math

from stagecraft.components.evaluator import evaluation
from stagecraft.components.evaluator.evaluation import UNDEFINED


def percent(value: float | None) -> str:
    """``12.3%``, or a dash for None and for what is undefined."""
    return UNDEFINED if value is None or math.isnan(value) else f"{value:.1%}"


def metric(name: str, value: float | None) -> str:
    """A metric's value: shares of examples in percent, others with four digits."""
    if name.endswith("accuracy"):
        return percent(value)
    return UNDEFINED if value is None else evaluation.number(value)


_SPELLED = {"auc": "AUC", "iou": "IoU", "mae": "MAE", "mse": "MSE", "r2": "R²"}


def title(name: str) -> str:
    """A metric's name as a heading: ``top_3_accuracy`` -> ``Top 3 accuracy``."""
    text = " ".join(_SPELLED.get(word, word) for word in name.split("_"))
    return text[:1].upper() + text[1:]


def number(value: float | None) -> str:
    """``12,345``, or a dash for None."""
    return "–" if value is None else f"{value:,.0f}"


def weight(value: float) -> str:
    """A sum of weights: whole numbers without decimals."""
    return number(value) if value == round(value) else f"{value:,.4g}"
