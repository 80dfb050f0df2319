"""Reports on tasks without classes: a regression, a binary classifier, a language model."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from houses_task import HOUSES
from markupsafe import escape

from stagecraft.components.evaluator.evaluation import Confusions, Slice
from stagecraft.components.report import artifacts
from stagecraft.components.report.pages import (
    charts,
    formats,
    model_card,
    page,
    sections,
    sentences,
)
from stagecraft.components.report.report_data import (
    FeatureStatistics,
    Quality,
    ReportData,
    Split,
    TaskSummary,
)

DRAW = np.random.default_rng(0)
ACTUAL = DRAW.normal(size=2000)


def quality(**changes: Any) -> Quality:
    made = Quality(
        metrics={"mse": 0.25, "mae": 0.4, "loss": 0.25, "example_count": 2000.0},
        changes={"mse": -0.05},
        confusion=[],
        classes=[],
        calibration=[],
        mistakes=[],
        images={},
        thresholds={"mse": {"max": 0.5}, "mae": {"min": 0.1, "max": 1.0}},
        failures=[],
        blessed=True,
        monitor="mse",
        slices=[
            Slice("region", "north", {"mse": 0.1, "mae": 0.3, "loss": 0.1, "example_count": 900.0}),
            Slice("region", "<south>", {"mse": 0.4, "loss": 0.4, "example_count": 1100.0}),
        ],
        sampled={
            "actual": ACTUAL.tolist(),
            "predicted": (ACTUAL + DRAW.normal(size=2000) / 2).tolist(),
            "weight": [1.0] * 2000,
        },
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture(scope="module")
def houses(one_device: ReportData) -> ReportData:
    """A regression, with statistics and samples."""
    assert one_device.training and one_device.data
    evaluations = [{"step": step, "loss": 9 / step, "mse": 1 - step} for step in (1, 2)]
    record = one_device.training.record | {"evaluations": evaluations, "best": evaluations[1]}
    curve = [point._replace(metrics={"mse": point.loss}) for point in one_device.training.curve]
    features = [
        FeatureStatistics(
            split="train",
            feature="area",
            kind="float",
            count=60,
            missing=1,
            summary="",
            numbers={"mean": 1.5, "std": 0.5, "min": 0, "median": 1.25, "max": 3, "zeros": 7},
        ),
        FeatureStatistics(
            split="train",
            feature="region",
            kind="string",
            count=60,
            missing=0,
            summary="",
            most_frequent={"north": 40.0, "<south>": 20.0},
        ),
    ]
    splits = [Split(name="train", examples=60, per_class=[])]
    return dataclasses.replace(
        one_device,
        class_names=(),
        quality=quality(),
        task=TaskSummary.of(HOUSES, "houses.pbtxt"),
        training=dataclasses.replace(
            one_device.training, record=record, curve=curve, samples={"a prompt": "<b>it</b> ends"}
        ),
        data=dataclasses.replace(
            one_device.data, features=features, splits=splits, augmented=[], source="houses"
        ),
    )


@pytest.fixture(scope="module")
def rendered(houses: ReportData) -> str:
    return page.render(houses)


def test_the_page(rendered, houses):
    assert re.findall(r'<section id="(\w+)"', rendered) == [
        "training", "residuals", "features", "slices", "samples",
        "data", "topology", "pipeline", "lineage", "reproduce",
    ]  # fmt: skip
    assert "<h1>MSE 0.2500 on 2,000 test examples</h1>" in rendered
    texts = (sentences.required(houses.quality), sentences.compared(houses.quality))
    for text in (*texts, sentences.worst_slice(houses)):
        assert str(escape(text)) in rendered
    assert "Examples per second" in rendered and "Examples per split" in rendered
    assert "&lt;b&gt;it&lt;/b&gt; ends" in rendered and "north (40), &lt;south&gt; (20)" in rendered
    assert "7</td>" in rendered and "1.25</td>" in rendered
    for absent in ("mages", "ccuracy", "Confusion", "ugmentation", "confidence"):
        assert absent not in rendered, absent
    assert len(rendered) < 1_000_000


def test_the_charts_describe_what_they_show(rendered):
    [histogram] = re.findall('aria-label="(Histogram of [^"]*)"', rendered)
    spread = float(re.findall(r"deviation ([\d.]+)\.", histogram)[0])
    assert spread == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(2 * 2000))
    assert 'aria-label="Predicted against actual' in rendered
    ids = re.findall(r'\bid="([^"]+)"', rendered)
    assert len(ids) == len(set(ids))


def test_verdict_summary_and_card(houses):
    verdict = "MSE 0.2500 on 2,000 examples (last blessed model: 0.3000). Blessed and pushed"
    assert sentences.verdict(houses).startswith(verdict)
    summary = page.summary(houses)
    assert "| MAE | **0.4000** |" in summary and "recall" not in summary
    card = model_card.as_json(houses)
    assert card["model_parameters"]["input_format"] == HOUSES.input_text("houses.pbtxt")
    assert card["model_parameters"]["output_format"] == "a price"
    metrics = card["quantitative_analysis"]["performance_metrics"]
    assert {"type": "mse", "value": "0.4", "slice": "region <south>"} in metrics
    assert not any("confidence_interval" in each for each in metrics)
    limits = [each["description"] for each in card["considerations"]["limitations"]]
    assert len(limits) == 2 and "2,000 examples" in limits[0]


def test_what_kubeflow_shows(houses):
    figures = artifacts.metrics(houses.quality, houses.training)
    assert figures["last_blessed_mse"] == pytest.approx(0.3) and figures["mae"] == 0.4
    assert "last_blessed_accuracy" not in figures


@pytest.mark.parametrize(
    "sampled",
    [
        {},
        {"actual": [], "predicted": [], "weight": []},
        {"actual": [float("nan")], "predicted": [1.0], "weight": [1.0]},
        {"actual": [2.0], "predicted": [1.0], "weight": [0.0]},
    ],
)
def test_a_section_without_its_numbers_is_left_out(houses, sampled):
    text = page.render(dataclasses.replace(houses, quality=quality(sampled=sampled, slices=())))
    assert 'id="residuals"' not in text and 'id="slices"' not in text


@pytest.mark.parametrize(
    ("name", "title"),
    [("mean_iou", "Mean IoU"), ("r2", "R²"), ("auc", "AUC"), ("top_3_accuracy", "Top 3 accuracy")],
)
def test_metrics_have_their_usual_names(name, title):
    assert formats.title(name) == title


def test_a_feature_without_values_has_no_statistics(houses):
    empty = dataclasses.replace(houses.data.features[0], count=0, missing=61)
    data = dataclasses.replace(houses.data, features=[empty])
    content = sections.features(dataclasses.replace(houses, data=data))
    assert content.tables[0].rows == [("area", "train", "0", "61", "7", *["–"] * 5)]


def test_a_task_that_is_gone(houses):
    """Its package was removed since."""
    text = page.render(dataclasses.replace(houses, task=TaskSummary()))
    assert "on 2,000 test examples" in text and 'id="slices"' in text


def test_a_section_of_another_package(houses, monkeypatch, tmp_path):
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "mine.py").write_text(
        "from stagecraft.extend import Content\n"
        "TITLE = 'Mine'\n"
        "def show(report):\n    return Content(f'{report.pipeline} & more')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    task = dataclasses.replace(houses.task, sections=("my_package.mine",))
    text = page.render(dataclasses.replace(houses, task=task))
    assert '<section id="my_package-mine"' in text and "quickstart &amp; more" in text


def test_rates_agree_with_the_definition():
    actual = DRAW.integers(2, size=200).astype(float)
    probability = DRAW.random(200).round(1)  # with ties
    weight = DRAW.random(200)
    false, true = charts.rates(actual, probability, weight)
    thresholds = np.unique(probability)[::-1]
    for number, threshold in enumerate(thresholds, start=1):
        chosen = probability >= threshold
        for found, of in ((true, actual), (false, 1 - actual)):
            expected = (weight * of * chosen).sum() / (weight * of).sum()
            assert found[number] == pytest.approx(expected)
    assert (false[0], true[0]) == (0, 0) and len(true) == 1 + len(thresholds)


THRESHOLDS = [
    Confusions(0.5, 40.0, 10.0, 45.0, 5.0),
    Confusions(0.9, 0.0, 0.0, 55.5, 45.0),
]


def binary_report(houses: ReportData, **changes: Any) -> ReportData:
    """``houses`` with the results of a binary task."""
    task = dataclasses.replace(houses.task, sections=("binary",), higher_is_better=True)
    metrics = {"auc": 1.0, "example_count": 100.0}
    made = quality(**({"monitor": "auc", "metrics": metrics, "slices": ()} | changes))
    return dataclasses.replace(houses, quality=made, task=task)


def test_a_binary_classifier(houses):
    actual = np.arange(100) % 2
    sampled = {
        "actual": actual.tolist(),
        "probability": (0.25 + actual / 2).tolist(),
        "weight": [1.0] * 100,
    }
    report = binary_report(houses, sampled=sampled, at_thresholds=THRESHOLDS)
    text = page.render(report)
    assert "the area 1.000." in text
    assert "50 predictions, mean 75%, positive 100%" in text
    content = sections.binary(report)
    assert content and len(content.charts) == 2
    matrix, by_threshold = content.tables
    assert matrix.rows == [("0", "45", "10"), ("1", "5", "40")]
    assert by_threshold.rows[0] == ("0.5", "0.8000", "0.8889", "0.8421", "0.1818", "50")
    assert by_threshold.rows[1][:4] == ("0.9", "–", "0.0000", "0.0000")


def test_a_binary_classifier_without_a_curve(houses):
    """All sampled examples have one class, are no numbers, or weigh nothing."""
    rows = {
        "actual": [0.0, 1.0, 1.0, 0.0],
        "probability": [0.2, 0.8, float("nan"), 0.9],
        "weight": [1.0, 0.0, 1.0, 0.0],
    }
    for sampled in (rows, rows | {"weight": [0.0] * 4}, {}):
        report = binary_report(houses, sampled=sampled, at_thresholds=THRESHOLDS)
        content = sections.binary(report)
        assert content and len(content.tables) == 2 and not content.charts
        assert 'id="binary"' in page.render(report)
    assert sections.binary(binary_report(houses, sampled={})) is None


def test_weights_are_said(houses):
    """In captions, at the top, in the summary and on the card."""
    weight = [1.0, 2.0]
    sampled = {"actual": [0.0, 1.0], "probability": [0.1, 0.9], "weight": weight}
    slices = [Slice("region", "north", {"auc": float("nan"), "example_count": 2.0})]
    changes = {"sampled": sampled, "slices": slices, "at_thresholds": THRESHOLDS}
    report = binary_report(houses, **changes)
    assert report.quality and report.quality.is_weighted
    content = sections.binary(report)
    assert content and content.tables[0].rows[0] == ("0", "45", "10")
    sentence = sentences.weighted(report.quality)
    for text in (page.render(report), page.summary(report)):
        assert sentence in text
    metrics = model_card.as_json(report)["quantitative_analysis"]["performance_metrics"]
    assert [each["slice"].endswith("weighted") for each in metrics] == [True, False] * 2
    without = binary_report(houses, **changes | {"sampled": sampled | {"weight": [1.0, 1.0]}})
    assert without.quality and not sentences.weighted(without.quality)
    assert sentence not in page.summary(without)
    captions = [[each.caption for each in sections.slices(r).tables] for r in (report, without)]
    assert captions[0] != captions[1]


def classified(houses: ReportData, count: int, weight: list[float]) -> ReportData:
    """``houses`` with the results of a classifier: of eight answers, three are wrong."""
    sampled = {
        "actual": [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0, 1.0],
        "predicted": [0.0, 1.0, 2.0, 1.0, 2.0, 2.0, 1.0, 1.0],
        "weight": weight,
    }
    metrics = {"accuracy": 0.625, "example_count": float(np.count_nonzero(weight))}
    made = quality(monitor="accuracy", metrics=metrics, sampled=sampled, slices=())
    names = tuple(f"class {number}" for number in range(count))
    task = dataclasses.replace(houses.task, sections=("confusions",), class_names=names)
    return dataclasses.replace(houses, quality=made, task=task)


def test_confusions_of_few_classes(houses):
    for weight, expected in (([1.0] * 8, "2"), ([0.4] * 8, "0.8")):
        [table] = sections.confusions(classified(houses, 3, weight)).tables
        assert table.rows[0][2] == expected
    plain, weighted = (
        sections.confusions(classified(houses, 3, [each] * 8)).tables[0].caption
        for each in (1.0, 0.4)
    )
    assert plain != weighted


def test_confusions_of_many_classes(houses):
    [table] = sections.confusions(classified(houses, 30, [1.0] * 8)).tables
    assert table.rows == [("class 0", "class 1", "2"), ("class 1", "class 2", "1")]


def test_examples_that_count_nowhere(houses):
    """An unknown label has the weight 0, which makes no weighted metrics."""
    unseen = classified(houses, 3, [1.0] * 6 + [0.0] * 2).quality
    weighted = classified(houses, 3, [1.0] * 6 + [0.5] * 2).quality
    none = classified(houses, 3, [0.0] * 8).quality
    assert unseen and weighted and none
    assert unseen.interval and not unseen.is_weighted
    assert weighted.interval is None and weighted.is_weighted and none.interval is None
    assert "95%" not in page.render(classified(houses, 3, [0.5] * 8))


def test_unseen_labels_are_said_with_the_data(houses):
    assert houses.data
    data = dataclasses.replace(houses.data, unseen="eval: town Rom (2)")
    assert data.unseen in sentences.data_text(dataclasses.replace(houses, data=data))


def test_an_undefined_metric_of_a_slice_is_a_dash(houses):
    slices = [Slice("region", "north", {"auc": float("nan"), "example_count": 2.0})]
    [table] = sections.slices(binary_report(houses, slices=slices)).tables
    assert table.rows == [("north", "2", "–")]
