"""A task of a user's, through the Evaluator: metrics, slices, gate, sentences, sample."""

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import houses_task
import numpy as np
import pytest
import tensorflow_transform as tft
from artifacts import artifact
from made_once import made_once
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto import config_pb2
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import json_utils, proto_utils

from stagecraft.components.evaluator import task_metric
from stagecraft.components.evaluator.baseline_check import BaselineError
from stagecraft.components.evaluator.component import Executor
from stagecraft.components.evaluator.evaluation import (
    BETTER_THAN_CONSTANT,
    FINITE,
    Evaluation,
    read_sampled,
)
from stagecraft.components.evaluator.results import read_evaluation
from stagecraft.components.evaluator.task_metric import SampledPredictions
from stagecraft.components.report.collect import collect
from stagecraft.components.report.pages import page
from stagecraft.pipeline.data import eval_config
from stagecraft.pipeline.settings import EvaluateSettings
from stagecraft.trainer_module.data import input_data
from stagecraft.trainer_module.engines.objective import Objective
from stagecraft.trainer_module.settings import TaskSettings, TrainingSettings
from stagecraft.trainer_module.training.assets import METRICS

GOOD, BAD = (1.0, 2.0), (0.5, 2.0)


@pytest.fixture(scope="module", autouse=True)
def _known() -> Iterator[None]:
    yield from houses_task.known()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return made_once(tmp_path_factory, "houses", houses_task.write_data)


def evaluate(
    folder: pathlib.Path,
    data: pathlib.Path,
    weights: Any,
    baseline: Any = None,
    *,
    other_metrics: bool = False,
    **settings: Any,
) -> tuple[bool, Evaluation]:
    """Whether our Evaluator blesses a model with these weights, and what is read of it."""
    examples = artifact(standard_artifacts.Examples, data / "examples")
    examples.split_names = artifact_utils.encode_split_names(["train", "val", "eval"])
    inputs = {
        "examples": [examples],
        "schema": [artifact(standard_artifacts.Schema, data / "schema")],
    }
    for name, given in (("model", weights), ("baseline_model", baseline)):
        if given is not None:
            houses_task.export(folder / name / "Format-Serving", houses_task.model(*given), data)
            inputs[name] = [artifact(standard_artifacts.Model, folder / name)]
    blessing = artifact(standard_artifacts.ModelBlessing, folder / "blessing")
    found = artifact(standard_artifacts.ModelEvaluation, folder / "evaluation")
    config = eval_config(EvaluateSettings(**settings), TaskSettings(name="houses"))
    if other_metrics:
        path = folder / "baseline_model" / "Format-Serving" / METRICS
        path.write_text(path.read_text().replace("mae", "mean"))
    properties = {
        "eval_config": proto_utils.proto_to_json(config),
        "example_splits": json_utils.dumps(["eval"]),
    }
    Executor().Do(inputs, {"evaluation": [found], "blessing": [blessing]}, properties)
    blessed = blessing.get_int_custom_property("blessed") == 1
    return blessed, read_evaluation(found.uri)


def expected(weights: tuple[float, float], region: str | None = None) -> dict[str, float]:
    """In NumPy, float64."""
    given = [row for row in houses_task.rows(60, seed=2) if region in (None, row["region"])]
    count = np.array([row["count"] for row in given])
    error = np.array(
        [weights[0] * row["area"] + weights[1] * row["rooms"] - row["price"] for row in given]
    )
    mse = float((count * error**2).sum() / count.sum())
    mae = float((count * abs(error)).sum() / count.sum())
    return {"mse": mse, "mae": mae, "loss": mse, "example_count": float(len(given))}


def measured(metrics: dict[str, float]) -> dict[str, float]:
    """Without the confidence of the comparison with a constant."""
    return {name: value for name, value in metrics.items() if name != BETTER_THAN_CONSTANT}


@pytest.fixture(scope="module")
def blessed(data: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder of a model that is better than the last one, of its evaluation and its blessing."""
    folder = tmp_path_factory.mktemp("blessed")
    is_blessed, found = evaluate(
        folder,
        data,
        GOOD,
        baseline=BAD,
        slices=("region",),
        thresholds={"mse": {"max": 0.5}, "mae": {"min": 0.01, "max": 1.0}},
    )
    assert is_blessed and found.failures == []
    return folder


@pytest.mark.slow
def test_metrics_slices_and_bounds(blessed):
    found = read_evaluation(str(blessed / "evaluation"))
    # float32 of the model's output, up to 7, squared.
    assert measured(found.metrics) == pytest.approx(expected(GOOD), rel=1e-5)
    assert found.changes["mse"] == pytest.approx(expected(GOOD)["mse"] - expected(BAD)["mse"])
    assert found.monitor == "mse" and found.confusion == [] and found.mistakes == []
    assert {(each.feature, each.value) for each in found.slices} == {
        ("region", region) for region in houses_task.REGIONS
    }
    for each in found.slices:
        of_slice = expected(GOOD, each.value)
        assert measured(each.metrics) == pytest.approx(of_slice, rel=1e-5, abs=1e-9)
    enough = {BETTER_THAN_CONSTANT: {"min": 0.95}}
    assert found.thresholds == {"mse": {"max": 0.5}, "mae": {"min": 0.01, "max": 1.0}} | enough
    assert sorted(found.sampled) == ["actual", "predicted", "weight"]
    assert len(found.sampled["actual"]) == 60 and set(found.sampled["weight"]) == {1, 2}


def test_the_evaluator_computes_what_a_training_computes(blessed, data):
    """The same function on the same examples: only the order of the sums differs."""
    settings = TrainingSettings.model_validate({"task": {"name": "houses"}})
    objective, model = Objective(settings), houses_task.model(*GOOD)
    transform = tft.TFTransformOutput(str(data / "transform_graph"))
    files = [str(data / "examples" / "Split-eval" / "*")]
    batches = input_data.eval_dataset(files, transform, 7, task=houses_task.HOUSES)
    sums = sum(objective.evaluation(model(batch.inputs), batch).numpy() for batch in batches)
    trained = objective.evaluated(sums)
    found = read_evaluation(str(blessed / "evaluation")).metrics
    assert found["loss"] == pytest.approx(trained.loss, rel=1e-6)
    assert {name: found[name] for name in trained.values} == pytest.approx(trained.values, rel=1e-6)


def test_the_report_shows_it(blessed, data):
    examples = artifact(standard_artifacts.Examples, data / "examples")
    examples.split_names = artifact_utils.encode_split_names(["train", "val", "eval"])
    blessing = artifact(standard_artifacts.ModelBlessing, blessed / "blessing")
    blessing.set_int_custom_property("blessed", 1)
    given = {
        "examples": examples,
        "schema": artifact(standard_artifacts.Schema, data / "schema"),
        "model": artifact(standard_artifacts.Model, blessed / "model"),
        "evaluation": artifact(standard_artifacts.ModelEvaluation, blessed / "evaluation"),
        "blessing": blessing,
    }
    report = collect(given, pipeline="prices", run_id="one", settings="task: {name: houses}")
    text = page.render(report)
    assert f"MSE {expected(GOOD)['mse']:.4f} on 60 test examples" in text
    assert re.findall(r'<section id="([\w-]+)"', text) == [
        "residuals", "slices", "data", "lineage", "reproduce",
    ]  # fmt: skip
    assert read_evaluation(str(blessed / "evaluation")).comparison.removeprefix("mse") in text
    assert "Predicted against actual" in text and "Metrics by region" in text
    assert "images" not in text and "60 eval" in text
    assert report.task.noun == "examples" and not report.task.higher_is_better


@pytest.mark.slow
def test_a_worse_model_is_refused_with_the_reasons(data, tmp_path):
    blessed, found = evaluate(
        tmp_path,
        data,
        BAD,
        baseline=GOOD,
        thresholds={"mse": {"max": 0.5}, "mae": {"min": 2.0}},
    )
    assert not blessed
    assert [each.split()[0] for each in sorted(found.failures)] == ["mae", "mse", "mse"]


@pytest.mark.slow
def test_a_baseline_with_other_metrics_is_no_baseline(data, tmp_path):
    """The columns of its sums have another meaning."""
    with pytest.raises(BaselineError):
        evaluate(tmp_path / "compared", data, BAD, baseline=GOOD, other_metrics=True)
    blessed, found = evaluate(
        tmp_path / "alone", data, BAD, baseline=GOOD, other_metrics=True, not_worse=False
    )
    assert blessed and found.changes == {} and found.failures == []


@pytest.mark.slow
def test_a_loss_that_is_no_number(data, tmp_path):
    blessed, found = evaluate(tmp_path, data, (np.nan, 1.0))
    assert not blessed
    assert len(found.failures) == 3 and found.comparison in found.failures


def of_constant() -> float:
    """The mse of the mean price of the train split, on the eval split."""
    columns = [
        np.array([(row["price"], row["count"]) for row in houses_task.rows(60, seed)]).T
        for seed in (0, 2)
    ]
    (train, counts), (given, weights) = columns
    error = given - np.average(train, weights=counts)
    return float(np.average(error**2, weights=weights))


def test_by_how_much_a_model_beats_the_constant(blessed):
    found = read_evaluation(str(blessed / "evaluation"))
    assert found.metrics[BETTER_THAN_CONSTANT] > 0.999
    assert f"(mse {of_constant():.4f})" in found.comparison


@pytest.mark.parametrize(
    ("weights", "better_than_constant"),
    [
        ((0.0, 1.5), True),
        pytest.param((0.0, 1.5), False, marks=pytest.mark.slow),
        pytest.param((0.1, 2.0), True, marks=pytest.mark.slow),  # a little better than the mean
    ],
)
def test_a_first_model_must_beat_the_constant(weights, better_than_constant, data, tmp_path):
    blessed, found = evaluate(tmp_path, data, weights, better_than_constant=better_than_constant)
    assert found.metrics[BETTER_THAN_CONSTANT] < 0.95
    assert blessed is not better_than_constant
    assert found.failures == ([found.comparison] if better_than_constant else [])


def test_examples_without_weight_are_not_counted():
    [computation] = task_metric.NonzeroExampleCount().computations(
        eval_config=config_pb2.EvalConfig(), model_names=[""], output_names=[""]
    )
    combiner = computation.combiner
    parts = []
    for weights in ([1.0, 0.0], [0.5]):
        part = combiner.create_accumulator()
        for weight in weights:
            outputs = {"weights": np.array([weight])}
            element = metric_types.StandardMetricInputs(predictions=outputs)
            part = combiner.add_input(part, element)
        parts.append(part)
    [count] = combiner.extract_output(combiner.merge_accumulators(parts)).values()
    assert count == 2


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_the_sample_does_not_depend_on_the_workers(parts, monkeypatch):
    monkeypatch.setattr(task_metric, "KEPT", 20)
    [computation] = SampledPredictions().computations(
        eval_config=config_pb2.EvalConfig(model_specs=[config_pb2.ModelSpec()])
    )
    combiner, keys = computation.combiner, np.random.default_rng(0).permutation(300)
    accumulators = []
    for rows in np.array_split(np.arange(300), parts):
        accumulator = combiner.create_accumulator()
        for row in rows:
            outputs = {"key": keys[row], "sampled_x": float(row), "weights": np.ones(1)}
            element = metric_types.StandardMetricInputs(predictions=outputs)
            accumulator = combiner.add_input(accumulator, element)
            assert len(accumulator) < 40
        accumulators.append(accumulator)
    [text] = combiner.extract_output(combiner.merge_accumulators(accumulators)).values()
    assert read_sampled(text)["x"] == np.argsort(keys)[:20].tolist()


@pytest.mark.parametrize(
    ("thresholds", "least", "most"),
    [({}, None, FINITE), ({"loss": {"min": 0.1, "max": 2}}, 0.1, 2.0)],
)
def test_a_loss_has_a_bound_in_any_case(thresholds, least, most):
    config = eval_config(EvaluateSettings(thresholds=thresholds), TaskSettings(name="houses"))
    first, *_ = config.metrics_specs[0].metrics
    [compared] = first.per_slice_thresholds
    assert json.loads(f"{{{first.config}}}") == {"name": "mse", "task": {"name": "houses"}}
    change = compared.threshold.change_threshold
    assert change.direction == config_pb2.MetricDirection.LOWER_IS_BETTER
    assert change.absolute.value > 0
    [loss] = (each for each in config.metrics_specs[0].metrics if '"name": "loss"' in each.config)
    bounds = loss.per_slice_thresholds[0].threshold.value_threshold
    assert bounds.upper_bound.value == most
    assert (bounds.lower_bound.value if bounds.HasField("lower_bound") else None) == least
