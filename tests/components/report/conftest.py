"""Data of made-up reports: on one device, on a grid of two replicas and three stages, failed."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from stagecraft.components.evaluator.evaluation import CalibrationBin, Mistake
from stagecraft.components.metadata.run_metadata import ComponentRun
from stagecraft.components.report import images
from stagecraft.components.report.report_data import (
    Augmented,
    ClassMetrics,
    DataSummary,
    FeatureStatistics,
    LineageItem,
    Quality,
    ReportData,
    Split,
    TaskSummary,
    Training,
)
from stagecraft.schemas import features
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.training.monitoring.curve import Point

NAMES = ("cat", "dog", "<script>alert(1)</script>|")
CONFUSION = [[8, 2, 0], [1, 9, 0], [4, 0, 6]]


def _png(seed: int) -> bytes:
    return images.png(np.random.RandomState(seed).randint(0, 256, (32, 32, 3)).astype(np.uint8))


def _quality() -> Quality:
    taken = np.sum(CONFUSION, axis=0)
    return Quality(
        metrics={
            "accuracy": 23 / 30,
            "example_count": 30.0,
            "loss": 0.61,
            "top_3_accuracy": 1.0,
            "expected_calibration_error": 0.05,
        },
        changes={"accuracy": 23 / 30 - 0.7},
        confusion=CONFUSION,
        classes=[
            ClassMetrics(
                name=name,
                examples=10,
                precision=CONFUSION[label][label] / int(taken[label]),
                recall=CONFUSION[label][label] / 10,
            )
            for label, name in enumerate(NAMES)
        ],
        calibration=[
            CalibrationBin(examples=10, accuracy=0.4, confidence=0.5),
            CalibrationBin(examples=20, accuracy=0.95, confidence=0.9),
        ],
        mistakes=[
            Mistake(0.9 - number / 10, 100 + number, actual=2, predicted=0, probability=0.05)
            for number in range(4)
        ],
        images={100 + number: _png(number) for number in (1, 2, 3)},
        thresholds={"accuracy": {"min": 0.3}},
        failures=[],
        blessed=True,
    )


def _topology(strategy: str, stages: int, devices: list[str]) -> dict[str, Any]:
    alone = {"workers": 1, "worker": 0}
    return {"strategy": strategy, "devices": devices, "stages": stages, **alone}


def _record(**parallel: Any) -> dict[str, Any]:
    settings = TrainingSettings.model_validate({"parallel": parallel})
    return {
        "steps": 300,
        "best": {"step": 200, "loss": 0.5, "accuracy": 0.8},
        "evaluations": [
            {"step": step, "loss": 100 / step, "accuracy": step / 400} for step in (100, 200, 300)
        ],
        "images_per_second": 950.5,
        "resumed_from": 0,
        "batches": 300,
        "repeated": 0,
        "examples": {"train": 60, "val": 20},
        "plan": None,
        "settings": settings.flat(),
        "topology": _topology("one_device", 1, ["CPU:0"]),
        "versions": {"python": "3.10.1", "tensorflow": "2.16.2", "keras": "3.12", "tfx": "1.16.0"},
    }


def _training() -> Training:
    return Training(
        record=_record(),
        curve=[
            Point(
                step=step,
                loss=3 / (1 + step / 50),
                metrics={"accuracy": step / 350},
                learning_rate=0.01 * (300 - step) / 300,
                images_per_second=900.0 + step,
            )
            for step in range(1, 301, 10)
        ],
        timeline=None,
        parameters=123_456,
    )


@pytest.fixture(scope="session")
def one_device() -> ReportData:
    """A complete run on one device."""
    return ReportData(
        pipeline="quickstart",
        run_id="2026-01-02T03:04:05",
        written="2026-01-02T03:06:05+00:00",
        class_names=NAMES,
        task=TaskSummary.of(
            registries.TASKS.get("image_classification"), features.schema_file("cifar10"), NAMES
        ),
        quality=_quality(),
        pushed_to="/serving/17",
        pushed_version="17",
        training=_training(),
        data=DataSummary(
            source="sample",
            fingerprint="ab" * 32,
            splits=[
                Split(name=name, examples=3 * count, per_class=[count] * 3)
                for name, count in (("train", 20), ("val", 7), ("eval", 10))
            ],
            features=[
                FeatureStatistics(
                    split="train",
                    feature="label",
                    kind="int",
                    count=60,
                    missing=0,
                    summary="0 to 2, mean 1.0",
                )
            ],
            anomalies={"train": [], "val": [], "eval": []},
            augmented=[
                Augmented(label="cat", original=_png(9), variants=[_png(s) for s in range(5)])
            ],
        ),
        components=[
            ComponentRun(
                name="Cifar10ExampleGen", state="cached", seconds=0.1, original_seconds=4.0
            ),
            ComponentRun(name="Trainer", state="done", begin=5, seconds=75.0),
            ComponentRun(name="TrainingReport", state="running", begin=81),
        ],
        parity=None,
        lineage=[
            LineageItem(
                role="model",
                kind="Model",
                id=8,
                uri="/runs/quickstart/pipeline_root/Trainer/model/6",
                properties={"code_fingerprint": "c0de", "steps": "300"},
            )
        ],
        settings="name: quickstart\ntrain:\n  epochs: 10\n",
        versions=_record()["versions"],
    )


def _spans() -> list[dict[str, Any]]:
    return [
        {
            "begin": (begin := 0.1 * (stage + 2 * number)),
            "end": begin + 0.09,
            "replica": replica,
            "stage": stage,
            "what": what,
            "microbatch": None if what == "reduce" else 0,
            "turn": 0,
        }
        for replica in range(2)
        for stage in range(3)
        for number, what in enumerate(("forward", "backward", "reduce"))
    ]


@pytest.fixture(scope="session")
def grid(one_device: ReportData) -> ReportData:
    """A run on a grid, with a plan, a profiled step and parity."""
    assert one_device.training is not None
    record = _record(
        strategy="grid", replicas=2, stages=3, microbatches=4, virtual_devices=6, timeline_step=20
    )
    stage = {
        "first": "conv",
        "last": "logits",
        "layers": 7,
        "parameters": 1234,
        "flops": 2_500_000,
        "memory_bytes": 36_800_000,
        "share": 1 / 3,
    }
    plan = {"stages": [stage] * 3, "microbatch_schedule": "1f1b", "microbatches": 4, "idle": 0.35}
    topology = _topology("grid", 3, [f"CPU:{number}" for number in range(6)])
    training = dataclasses.replace(
        one_device.training,
        record=record | {"plan": plan, "topology": topology},
        timeline={
            "step": 20,
            "seconds": 0.79,
            "bubble": 1 / 3,
            "idle": 0.4,
            "shares": [0.3, 0.3, 0.4],
            "spans": _spans(),
        },
    )
    finding = {
        "criterion": "gradients",
        "variable": "conv/kernel",
        "difference": 1e-8,
        "tolerance": 1e-3,
    }
    row = {
        "topology": "configured",
        "reference": "one device in 8 accumulation steps",
        "equal": True,
        "seconds": 12.0,
        "findings": [finding],
    }
    return dataclasses.replace(
        one_device, training=training, parity={"verdict": "equal", "topologies": [row]}
    )


@pytest.fixture(scope="session")
def failed(one_device: ReportData) -> ReportData:
    """A run whose first component failed."""
    cause = "data.bin: record 7 has label <10>; expected 0 to 9"
    component = ComponentRun(name="Cifar10ExampleGen", state="failed", seconds=1.0, cause=cause)
    return ReportData(
        pipeline="quickstart",
        run_id="2026-01-02T03:04:05",
        written=one_device.written,
        class_names=(),
        quality=None,
        pushed_to=None,
        pushed_version=None,
        training=None,
        data=None,
        components=[component],
        parity=None,
        lineage=[],
        settings="",
        versions={},
        log="runs/quickstart/logs/20260102-030401.log",
    )
