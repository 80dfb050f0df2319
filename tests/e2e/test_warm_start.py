"""A model goes on with data of the same law, of other ranges and other frequencies."""

import json
import pathlib

import numpy as np
import pytest
from support import run

TOWNS = {"north": 1.0, "south": 10.0, "west": 100.0}


def write(folder: pathlib.Path, order: list[str], top: float) -> str:
    """y = town + size / 10: the first town of ``order`` is the most frequent one."""
    folder.mkdir()
    draw = np.random.default_rng(3)
    lines = ["town,size,y"]
    for _ in range(600):
        town = order[min(int(draw.exponential(0.7)), 2)]
        size = draw.uniform(0, top)
        lines.append(f"{town},{size:.6f},{TOWNS[town] + size / 10:.6f}")
    (folder / "rows.csv").write_text("\n".join(lines))
    return str(folder)


@pytest.mark.full
@pytest.mark.slow
def test_a_warm_start_is_right_or_refused(tmp_path):
    features = "{town: {kind: vocabulary, size: 3}, size: numeric}"
    settings = (
        "data.example_gen=tfx.components.CsvExampleGen",
        "data.infer_schema=true",
        "task.name=regression",
        f"task.args={{features: {features}, label: y}}",
        "train.model=linear",
        "evaluate.min_accuracy=0",
        "evaluate.thresholds={}",
        "parallel.strategy=one_device",
        "report.enabled=false",
    )
    learn = ("train.optimizer=adam", "train.learning_rate=0.3", "train.epochs=30")
    old = write(tmp_path / "old", ["north", "south", "west"], 1.0)
    run(tmp_path / "first", settings=(*settings, *learn, f"data.source={old}"))
    [model] = (tmp_path / "first" / "serving").glob("*/")
    new = write(tmp_path / "new", ["west", "north", "south"], 9.0)
    warm = (*settings, f"data.source={new}", f"train.initial_weights={model}", "train.steps=1")
    warm += ("train.optimizer=sgd", "train.learning_rate=1e-12", "train.schedule=constant")
    refused = run(tmp_path / "refused", "--to", "Trainer", settings=warm, code=1)
    assert "size" in refused.stderr and f"transform.graph: {model}" in refused.stderr
    run(tmp_path / "kept", "--to", "Trainer", settings=(*warm, f"transform.graph={model}"))
    errors = []
    for folder in ("first", "kept"):
        [record] = (tmp_path / folder).glob("pipeline_root/Trainer/model_run/*/record.json")
        errors.append(json.loads(record.read_text())["best"]["mse"])
    # The law is linear: what was learned below 1 holds up to 9, ten times as far from the mean.
    assert errors[0] < 1e-4 and errors[1] < 1e-2
