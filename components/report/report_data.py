"""The contents of a report as plain data: no TensorFlow, no artifacts, no prose.

A part that is None or empty is unknown for this run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stagecraft.components.evaluator.evaluation import (
    ACCURACY,
    BETTER_THAN_CONSTANT,
    EXAMPLE_COUNT,
    Evaluation,
)
from stagecraft.components.metadata.run_metadata import ComponentRun
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.training.monitoring.curve import Point

AUGMENTATION = "augmentation"
"""The section with images of each class, of a task whose examples are images."""

_NORMAL_95 = 1.959964  # standard deviations around the mean that hold 95 % of a normal distribution


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassMetrics:
    """Metrics of one class on the eval split."""

    name: str
    examples: int
    precision: float | None  # None if no example was predicted as this class
    recall: float | None  # None if no example has this class

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall."""
        if self.precision is None or self.recall is None or not self.precision + self.recall:
            return None
        return 2 * self.precision * self.recall / (self.precision + self.recall)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quality(Evaluation):
    """The Evaluator's results, and what a report shows with them."""

    classes: list[ClassMetrics]
    images: dict[int, bytes]
    """PNG images of the mistakes by example id, as far as the examples still exist."""
    files: Mapping[int, str] = dataclasses.field(default_factory=dict)
    """The files of those images, by example id, if the examples have names."""
    blessed: bool

    @property
    def is_weighted(self) -> bool:
        """Whether examples have weights, by which the metrics count them.

        An example that counts nowhere, such as one with an unknown label, has the weight 0.
        """
        return any(weight not in (0, 1) for weight in self.sampled.get("weight", ()))

    @property
    def value(self) -> float:
        """The metric ``monitor``."""
        return self.metrics.get(self.monitor, math.nan)

    @property
    def is_share(self) -> bool:
        """Whether ``monitor`` is a share of the examples."""
        return self.monitor == ACCURACY and ACCURACY in self.metrics

    @property
    def others(self) -> dict[str, float]:
        """The other metrics; sentences tell the confidence of ``comparison``."""
        left_out = (self.monitor, EXAMPLE_COUNT, BETTER_THAN_CONSTANT)
        return {name: value for name, value in self.metrics.items() if name not in left_out}

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the accuracy: Wilson's score interval.

        Wilson 1927, "Probable inference, the law of succession, and statistical inference". None
        for another metric, and for examples with weights.
        """
        count, share = self.metrics.get(EXAMPLE_COUNT, 0), self.value
        if not self.is_share or self.is_weighted or not count:
            return None
        square = _NORMAL_95**2 / count
        middle = (share + square / 2) / (1 + square)
        spread = math.sqrt(share * (1 - share) / count + square / count / 4)
        half = _NORMAL_95 * spread / (1 + square)
        return middle - half, middle + half

    @property
    def baseline(self) -> float | None:
        """The metric ``monitor`` of the last blessed model on the same examples."""
        change = self.changes.get(self.monitor)
        return None if change is None else self.value - change


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """The Trainer's record and curves."""

    record: dict[str, Any]
    """``stagecraft.trainer_module.training.record``: settings, topology, plan, evaluations, …"""
    curve: list[Point]
    timeline: dict[str, Any] | None
    """Timeline of the profiled step, from ``training.monitoring.timeline.describe``."""
    parameters: int | None
    samples: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Answers of the exported model to some inputs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmented:
    """An image of the train split as PNG, and its augmented variants in the first epochs."""

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
class FeatureStatistics:
    """StatisticsGen's results for a feature in a split."""

    split: str
    feature: str
    kind: str
    count: int
    missing: int
    summary: str  # range and mean of numbers, or length of bytes
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """``mean``, ``std``, ``min``, ``median``, ``max`` and ``zeros``; empty for text."""
    most_frequent: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Value -> examples, of text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSummary:
    """The examples, their statistics and anomalies."""

    source: str
    fingerprint: str  # SHA-256 of the content; may be empty
    splits: list[Split]
    features: list[FeatureStatistics]
    anomalies: dict[str, list[str]] | None  # by split, a sentence each
    augmented: list[Augmented]
    span: str = ""
    """Name, version and number of files of the span of the examples; may be empty."""
    window: str = ""
    """The spans that the model is trained on; empty if it is only that one."""
    unseen: str = ""
    """Labels that other splits have, but train lacks, with the numbers of their examples."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineageItem:
    """An artifact that contributed to the model."""

    role: str
    kind: str
    id: int  # in ML Metadata; 0: unknown
    uri: str
    properties: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSummary:
    """Facts that a report asks of the task."""

    noun: str = "examples"
    sections: Sequence[str] = ()
    higher_is_better: bool = True
    input_text: str = "tf.Examples"
    output_text: str = "unknown"
    class_names: Sequence[str] = ()
    """Of the classes that Transform found in a table."""

    @classmethod
    def of(
        cls,
        task: Task,
        schema_path: str | None,
        class_names: Sequence[str] = (),
        found: Sequence[str] = (),
    ) -> TaskSummary:
        """The summary of a task.

        Args:
            schema_path: None if the run has no schema yet.
            class_names: of the schema.
            found: the classes that Transform found.
        """
        return cls(
            noun=task.noun,
            sections=tuple(task.report_sections),
            higher_is_better=task.higher_is_better(task.monitor),
            input_text=task.input_text(schema_path) if schema_path else cls.input_text,
            output_text=task.output_text(class_names or found),
            class_names=tuple(found),
        )


class SpanResult(NamedTuple):
    """The evaluation of the last model of a span of the data."""

    span: str
    """The span's number or date."""
    metrics: Mapping[str, float]
    """On the eval split of the span."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportData:
    """All parts of a report."""

    pipeline: str
    run_id: str
    written: str  # time in ISO 8601
    class_names: tuple[str, ...]
    quality: Quality | None
    pushed_to: str | None
    pushed_version: str | None
    training: Training | None
    data: DataSummary | None
    components: list[ComponentRun]
    parity: dict[str, Any] | None  # ``parity.json`` of ParityGate
    lineage: list[LineageItem]
    settings: str
    """YAML of the settings that differ from the default; empty for a pipeline without them."""
    versions: dict[str, str]
    task: TaskSummary = TaskSummary()
    command: str = ""  # command line of the run; empty: unknown
    log: str = ""  # log file of the run; empty: unknown
    earlier_models: Sequence[SpanResult] = ()
    """Of the last spans, oldest first, with that of this run; empty without spans."""

    def class_name(self, label: int) -> str:
        """The label's class name, or the label where it has none."""
        return self.class_names[label] if label < len(self.class_names) else str(label)

    @property
    def broken(self) -> ComponentRun | None:
        """The component that failed or was stopped; None if the run completed."""
        return next((each for each in self.components if each.state in ("failed", "stopped")), None)

    @property
    def code_fingerprint(self) -> str:
        """Fingerprint of the code that trained; empty: unknown."""
        found = [each.properties.get("code_fingerprint", "") for each in self.lineage]
        return next(filter(None, found), "")
