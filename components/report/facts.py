"""What there is to say about a run, as plain data: no TensorFlow, no artifact, no text.

A part that is None, or empty, is not known of this run.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from stagecraft.trainer_module.training.monitoring.curve import Point

_NORMAL_95 = 1.959964
"""Standard deviations around the mean that hold 95 % of a normal distribution."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassFacts:
    """How one class fares on the eval split."""

    name: str
    examples: int
    precision: float | None
    """None where nothing was taken for it, and"""
    recall: float | None
    """None where there is no example of it."""

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall."""
        if self.precision is None or self.recall is None or not self.precision + self.recall:
            return None
        return 2 * self.precision * self.recall / (self.precision + self.recall)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wrong:
    """An example that the model is sure of, and wrong about."""

    id: int
    actual: str
    predicted: str
    confidence: float
    probability: float
    """Of ``actual``."""
    png: bytes | None
    """The picture; None where the examples are not there any more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """Answers of about the same confidence."""

    examples: int
    accuracy: float
    confidence: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quality:
    """What the Evaluator found on the eval split."""

    metrics: dict[str, float]
    changes: dict[str, float]
    """From the last blessed model; empty without one."""
    confusion: list[list[int]]
    """``[actual][predicted]``."""
    classes: list[ClassFacts]
    calibration: list[CalibrationBin]
    mistakes: list[Wrong]
    min_accuracy: float | None
    failures: list[str]
    """Why it is not blessed, a sentence each."""
    blessed: bool

    @property
    def interval(self) -> tuple[float, float]:
        """Where the accuracy is with a confidence of 95 %, by the number of examples.

        Wilson 1927, "Probable inference, the law of succession, and statistical inference".
        """
        count, share = self.metrics["example_count"], self.metrics["accuracy"]
        square = _NORMAL_95**2 / count
        middle = (share + square / 2) / (1 + square)
        spread = math.sqrt(share * (1 - share) / count + square / count / 4)
        half = _NORMAL_95 * spread / (1 + square)
        return middle - half, middle + half

    @property
    def baseline(self) -> float | None:
        """Accuracy of the last blessed model on the same examples."""
        change = self.changes.get("accuracy")
        return None if change is None else self.metrics["accuracy"] - change


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """The Trainer's record, and its curves."""

    record: dict[str, Any]
    """``stagecraft.trainer_module.training.record``: settings, topology, plan, evaluations, …"""
    curve: list[Point]
    timeline: dict[str, Any] | None
    """Of the watched step, from ``training.monitoring.timeline.describe``."""
    parameters: int | None
    """Weights of the exported model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmented:
    """A picture of the train split, and what augmentation made of it in the first epochs."""

    label: str
    original: bytes
    variants: list[bytes]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """Examples of a split."""

    name: str
    examples: int
    per_class: list[int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureFacts:
    """What StatisticsGen found of a feature in a split."""

    split: str
    feature: str
    kind: str
    count: int
    missing: int
    summary: str
    """Range and mean of numbers; length of bytes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """What was read."""

    source: str
    fingerprint: str
    """SHA-256 of the content, or empty."""
    splits: list[Split]
    features: list[FeatureFacts]
    anomalies: dict[str, list[str]] | None
    """By split, a sentence each."""
    augmented: list[Augmented]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Component:
    """When a component of the pipeline ran, and how it ended."""

    name: str
    state: str
    """``done``, ``cached``, ``failed``, ``running``, ``stopped`` before its end; ``skipped`` by a
    partial run, or ``not run`` because the run did not come so far."""
    begin: float
    """Seconds after the run's first one."""
    seconds: float
    """Of a cached one: what it took to find that out."""
    original_seconds: float | None
    """Of a cached one: what it took when it was run."""
    cause: str = ""
    """Why it failed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """An artifact that had a part in the model."""

    role: str
    kind: str
    id: int
    """In ML Metadata; 0: not known."""
    uri: str
    properties: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """All of a run."""

    pipeline: str
    run_id: str
    written: str
    """When, as ISO 8601."""
    class_names: tuple[str, ...]
    quality: Quality | None
    pushed_to: str | None
    pushed_version: str | None
    training: Training | None
    data: Data | None
    components: list[Component]
    parity: dict[str, Any] | None
    """``parity.json`` of ParityGate."""
    lineage: list[Item]
    settings: str
    """YAML of the pipeline's settings that are not the default; empty where it has others."""
    versions: dict[str, str]
    command: str = ""
    """Command line that asked for the run; empty: not known."""
    log: str = ""
    """File that the run's components wrote to; empty: not known."""

    @property
    def broken(self) -> Component | None:
        """The component that failed, or was stopped; None where the run came to its end."""
        return next((each for each in self.components if each.state in ("failed", "stopped")), None)
