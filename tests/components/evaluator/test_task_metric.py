"""A task of a user's, through the Evaluator: metrics, slices, gate, sentences, sample."""

import pathlib
from collections.abc import Iterator
from typing import Any

import houses
import numpy as np
import pytest
from artifacts import artifact
from made_once import made_once
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import json_utils, proto_utils

from stagecraft.components.evaluator.component import Executor
from stagecraft.components.evaluator.evaluation import Evaluation
from stagecraft.components.evaluator.results import read_evaluation
from stagecraft.pipeline.evaluation import eval_config
from stagecraft.pipeline.settings import EvaluateSettings
from stagecraft.trainer_module.settings import TaskSettings

GOOD, BAD = (1.0, 2.0), (0.5, 2.0)


@pytest.fixture(scope="module", autouse=True)
def _known() -> Iterator[None]:
    yield from houses.known()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return made_once(tmp_path_factory, "houses", houses.write_data)


def evaluate(
    folder: pathlib.Path, data: pathlib.Path, weights: Any, baseline: Any = None, **settings: Any
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
            houses.export(folder / name / "Format-Serving", houses.model(*given), data)
            inputs[name] = [artifact(standard_artifacts.Model, folder / name)]
    blessing = artifact(standard_artifacts.ModelBlessing, folder / "blessing")
    found = artifact(standard_artifacts.ModelEvaluation, folder / "evaluation")
    config = eval_config(EvaluateSettings(**settings), TaskSettings(name="houses"))
    properties = {
        "eval_config": proto_utils.proto_to_json(config),
        "example_splits": json_utils.dumps(["eval"]),
    }
    Executor().Do(inputs, {"evaluation": [found], "blessing": [blessing]}, properties)
    blessed = blessing.get_int_custom_property("blessed") == 1
    return blessed, read_evaluation(found.uri)


def expected(weights: tuple[float, float], region: str | None = None) -> dict[str, float]:
    """In NumPy, float64."""
    given = [row for row in houses.rows(60, seed=2) if region in (None, row["region"])]
    count = np.array([row["count"] for row in given])
    error = np.array(
        [weights[0] * row["area"] + weights[1] * row["rooms"] - row["price"] for row in given]
    )
    mse = float((count * error**2).sum() / count.sum())
    mae = float((count * abs(error)).sum() / count.sum())
    return {"mse": mse, "mae": mae, "loss": mse, "example_count": float(len(given))}


def test_metrics_slices_and_bounds(data, tmp_path):
    blessed, found = evaluate(
        tmp_path,
        data,
        GOOD,
        baseline=BAD,
        slices=("region",),
        thresholds={"mse": {"max": 0.5}, "mae": {"min": 0.01, "max": 1.0}},
    )
    assert blessed and found.failures == []
    # float32 of the model's output, up to 7, squared.
    assert found.metrics == pytest.approx(expected(GOOD), rel=1e-5)
    assert found.changes["mse"] == pytest.approx(expected(GOOD)["mse"] - expected(BAD)["mse"])
    assert found.monitor == "mse" and found.confusion == [] and found.mistakes == []
    assert {(each.feature, each.value) for each in found.slices} == {
        ("region", region) for region in houses.REGIONS
    }
    for each in found.slices:
        assert each.metrics == pytest.approx(expected(GOOD, each.value), rel=1e-5, abs=1e-9)
    assert found.thresholds == {"mse": {"max": 0.5}, "mae": {"min": 0.01, "max": 1.0}}
    assert sorted(found.sampled) == ["actual", "predicted", "weight"]
    assert len(found.sampled["actual"]) == 60 and set(found.sampled["weight"]) == {1, 2}


def test_a_worse_model_is_refused_with_the_reasons(data, tmp_path, messages):
    blessed, found = evaluate(
        tmp_path,
        data,
        BAD,
        baseline=GOOD,
        thresholds={"mse": {"max": 0.5}, "mae": {"min": 2.0}},
    )
    assert not blessed
    for each in sorted(found.failures):
        messages.check(each)
    assert len(found.failures) == 3


def test_a_loss_that_is_no_number(data, tmp_path, messages):
    blessed, found = evaluate(tmp_path, data, (np.nan, 1.0))
    assert not blessed
    [why] = found.failures
    messages.check(why)
