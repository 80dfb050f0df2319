"""A binary task through the Evaluator: TFMA's metrics, slices of one class, and the report."""

import math
import pathlib
from collections.abc import Iterator

import dear_task
import houses_task
import pytest
from artifacts import artifact
from made_once import made_once
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import json_utils, proto_utils

from stagecraft.components.evaluator.component import Executor
from stagecraft.components.evaluator.evaluation import Confusions, Evaluation, metric_names
from stagecraft.components.evaluator.results import read_evaluation
from stagecraft.components.report.collect import collect
from stagecraft.components.report.pages import page
from stagecraft.pipeline.data import eval_config
from stagecraft.pipeline.settings import EvaluateSettings
from stagecraft.trainer_module.settings import TaskSettings

WEIGHTS, BIAS = (1.0, 2.0), -5.0


@pytest.fixture(scope="module", autouse=True)
def _known() -> Iterator[None]:
    yield from dear_task.known()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return made_once(tmp_path_factory, "houses", houses_task.write_data)


@pytest.fixture(scope="module")
def evaluated(data: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder of a model and its evaluation, with a baseline and slices."""
    folder = tmp_path_factory.mktemp("dear")
    examples = artifact(standard_artifacts.Examples, data / "examples")
    examples.split_names = artifact_utils.encode_split_names(["train", "val", "eval"])
    schema = artifact(standard_artifacts.Schema, data / "schema")
    inputs = {"examples": [examples], "schema": [schema]}
    for name, bias in (("model", BIAS), ("baseline_model", BIAS - 1)):
        model = houses_task.model(*WEIGHTS)
        model.layers[0].bias.assign([bias])
        target = folder / name / "Format-Serving"
        houses_task.export(target, model, data, dear_task.DEAR)
        inputs[name] = [artifact(standard_artifacts.Model, folder / name)]
    settings = EvaluateSettings(slices=("region",), thresholds={"recall": {"min": 0.9}})
    config = eval_config(settings, TaskSettings(name="dear"))
    outputs = {
        "evaluation": [artifact(standard_artifacts.ModelEvaluation, folder / "evaluation")],
        "blessing": [artifact(standard_artifacts.ModelBlessing, folder / "blessing")],
    }
    properties = {
        "eval_config": proto_utils.proto_to_json(config),
        "example_splits": json_utils.dumps(["eval"]),
    }
    Executor().Do(inputs, outputs, properties)
    return folder


def of(evaluated: pathlib.Path) -> Evaluation:
    return read_evaluation(str(evaluated / "evaluation"))


def expected(threshold: float, region: str | None = None) -> Confusions:
    """In NumPy."""
    actual, probability, weight = dear_task.columns(WEIGHTS, BIAS, region)
    chosen, is_true = probability > threshold, actual == 1
    return Confusions(
        threshold,
        *(
            float(weight[part].sum())
            for part in (chosen & is_true, chosen & ~is_true, ~chosen & ~is_true, ~chosen & is_true)
        ),
    )


@pytest.mark.slow
def test_metrics_at_thresholds(evaluated):
    found = of(evaluated)
    assert list(found.at_thresholds) == [expected(number / 10) for number in range(1, 10)]
    at_half = expected(0.5)
    for name in ("precision", "recall", "f1"):
        assert found.metrics[name] == pytest.approx(getattr(at_half, name))
        assert name in found.changes
    assert found.monitor == "auc"
    assert found.thresholds["recall"] == {"min": 0.9}


@pytest.mark.slow
def test_a_slice_of_one_class(evaluated):
    """It has neither an AUC nor a recall: zero would be a wrong number."""
    slices = {each.value: each.metrics for each in of(evaluated).slices}
    for name in ("auc", "recall"):
        assert math.isnan(slices["north"][name]) and math.isnan(slices["west"][name])
        assert not math.isnan(slices["south"][name])
    assert slices["south"]["precision"] == pytest.approx(expected(0.5, "south").precision)


@pytest.mark.slow
def test_the_report_shows_it(evaluated, data):
    examples = artifact(standard_artifacts.Examples, data / "examples")
    examples.split_names = artifact_utils.encode_split_names(["train", "val", "eval"])
    given = {
        "examples": examples,
        "schema": artifact(standard_artifacts.Schema, data / "schema"),
        "evaluation": artifact(standard_artifacts.ModelEvaluation, evaluated / "evaluation"),
    }
    report = collect(given, pipeline="dear", run_id="one", settings="task: {name: dear}")
    assert report.quality and report.quality.is_weighted
    text = page.render(report)
    row = next(line for line in text.splitlines() if '<th scope="row">north</th>' in line)
    assert "–" in row
    assert 'id="binary"' in text and ">0.9</th>" in text


def test_names_of_metrics():
    assert metric_names(dear_task.DEAR) == (
        "auc", "accuracy", "loss", "precision", "recall", "f1",
    )  # fmt: skip
    assert "recall" not in metric_names(houses_task.HOUSES)


@pytest.mark.parametrize(
    ("counts", "name"),
    [((0, 0, 5, 5), "precision"), ((0, 5, 5, 0), "recall"), ((0, 0, 5, 0), "f1"),
     ((5, 0, 0, 5), "false_positive_rate")],
)  # fmt: skip
def test_a_share_of_nothing_is_undefined(counts, name):
    assert math.isnan(getattr(Confusions(0.5, *counts), name))
