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


def size(count: float) -> str:
    """Bytes as ``1.2 MB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def duration(seconds: float) -> str:
    """``1.2 s``, ``45 s``, ``3 min 20 s`` or ``1 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
