"""Ten days of a table that drifts slowly, with a day in other units, locally and on Kubeflow."""

from __future__ import annotations

import datetime
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from processes import ran
from support import STAGECRAFT

pytestmark = [pytest.mark.full, pytest.mark.timeout(7200)]

DAYS = [str(datetime.date(2026, 11, 1) + datetime.timedelta(day)) for day in range(10)]
BROKEN = DAYS[7]
"""Its areas are in square feet."""

ROOMS = 3

SCHEMA = """
feature { name: "area" type: FLOAT presence { min_fraction: 1 min_count: 1 } shape {} }
feature { name: "rooms" type: INT presence { min_fraction: 1 min_count: 1 } shape {} }
feature { name: "price" type: FLOAT presence { min_fraction: 1 min_count: 1 } shape {} }
"""

SETTINGS: dict[str, Any] = {
    "name": "flats",
    "data": {
        "example_gen": "tfx.components.CsvExampleGen",
        "schema_file": "schema.pbtxt",
        "window": 3,
    },
    "task": {
        "name": "regression",
        "args": {"features": {"area": "numeric", "rooms": "numeric"}, "label": "price"},
    },
    "transform": {"materialize": False},
    "train": {
        "model": "dnn_16",
        "optimizer": "adam",
        "schedule": "constant",
        "learning_rate": 0.02,
        "batch_size": 32,
        "steps": 200,
        "initial_weights": "last_pushed",
        "warm_start": {"steps": 60},
        "window_weights": [1, 1, 2],
    },
    "drift": {"max_distance": 0.3},
    "evaluate": {"min_accuracy": 0, "thresholds": {}, "not_worse": False},
    "report": {"enabled": False},
}


def price(day: str, area: float) -> float:
    """The price of a flat: that of an area rises a little each day."""
    return (3 + 0.2 * DAYS.index(day)) * area + 10 * ROOMS


def write(folder: pathlib.Path) -> None:
    """Writes a folder of CSV for each day."""
    for number, day in enumerate(DAYS):
        draw = np.random.default_rng(number)
        lines = ["area,rooms,price"]
        for area in draw.uniform(20 + number, 120 + number, 600):
            told = 10.764 * area if day == BROKEN else area
            lines.append(f"{told:.3f},{ROOMS},{price(day, area) + draw.normal(0, 1):.3f}")
        path = folder / day
        path.mkdir(parents=True)
        (path / "flats.csv").write_text("\n".join(lines) + "\n")


def answers(model: pathlib.Path) -> dict[float, float]:
    """Area -> the price that a pushed model says."""
    loaded = tf.saved_model.load(str(model))
    areas = [40.0, 80.0, 110.0]
    found = loaded.signatures["serving_columns"](
        area=tf.constant(areas), rooms=tf.constant([ROOMS] * len(areas), tf.int64)
    )
    [values] = found.values()
    return dict(zip(areas, values.numpy().reshape(-1).tolist(), strict=True))


def settings(folder: pathlib.Path, source: str) -> pathlib.Path:
    (folder / "schema.pbtxt").write_text(SCHEMA)
    data = {**SETTINGS["data"], "schema_file": str(folder / "schema.pbtxt"), "source": source}
    (folder / "flats.yaml").write_text(json.dumps({**SETTINGS, "data": data}))
    return folder / "flats.yaml"


def local(folder: pathlib.Path, first: str, last: str) -> tuple[int, dict[str, Any]]:
    words = ("run", "--json", "--config", folder / "flats.yaml", "--output", folder / "out")
    done = ran(
        STAGECRAFT, *words, "--spans", f"{first}:{last}", code=None, cwd=folder, timeout=3000
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def on_this_machine(folder: pathlib.Path) -> dict[str, dict[float, float]]:
    """The answers of the model of each day."""
    folder.mkdir()
    write(folder / "data")
    settings(folder, str(folder / "data/{YYYY}-{MM}-{DD}"))
    code, told = local(folder, DAYS[0], DAYS[-1])
    assert code == 1
    *good, broken = told["spans"]
    assert broken["span"]["name"] == BROKEN and "area" in broken["error"]
    # The same command leaves out the days that are complete, and stops at the broken one again.
    again, more = local(folder, DAYS[6], BROKEN)
    assert again == 1 and "completed_by" in more["spans"][0]
    code, told = local(folder, DAYS[8], DAYS[9])
    assert code == 0
    models = {}
    runs = (folder / "out/pipeline_root/Trainer/model_run").iterdir()
    trainings = sorted(runs, key=lambda path: int(path.name))
    for each, training in zip([*good, *told["spans"]], trainings, strict=True):
        day = each["span"]["name"]
        models[day] = answers(pathlib.Path(each["pushed"]))
        check_record(day, json.loads((training / "record.json").read_text()))
    return models


def check_record(day: str, record: Mapping[str, Any]) -> None:
    """The window has the broken day never, and each training but the first continues another."""
    place = DAYS.index(day)
    window = [each for each in DAYS[max(0, place - 2) : place + 1] if each != BROKEN]
    assert [each["name"] for each in record["spans"]] == window
    assert bool(record["initial_weights"]) == (place > 0)
    assert record["steps"] == (60 if place else 200)


def emulated(folder: pathlib.Path) -> dict[str, dict[float, float]]:
    """The answers of the model of each day."""
    bucket = folder / "out/store/minio"
    write(bucket / "mlpipeline/days")
    config = settings(folder, "minio://mlpipeline/days/{YYYY}-{MM}-{DD}")
    compiled = folder / "compiled.yaml"
    options = ("--set", "report.enabled=true", "--output", compiled)
    ran(STAGECRAFT, "compile", "--config", config, *options, cwd=folder)
    models = {}
    for day in DAYS:
        words = ("emulate", compiled, "--output", folder / "out", "-p", f"data_span={day}")
        done = ran(STAGECRAFT, *words, code=None, cwd=folder, timeout=3000)
        summary = json.loads(done.stdout.splitlines()[-1])
        states = {name: step["state"] for name, step in summary["steps"].items()}
        if day == BROKEN:
            assert done.returncode == 1 and states["AnomalyGate"] == "failed"
            assert "area" in done.stderr
            continue
        assert done.returncode == 0, done.stderr[-3000:]
        assert {*states.values()} <= {"done", "cached"}
        models[day] = answers(bucket / summary["pushed"].removeprefix("minio://"))
    results = [json.loads(path.read_text()) for path in bucket.rglob("span_results/*.json")]
    assert sorted(each["span"] for each in results) == [*models]
    return models


def test_models_follow_the_days_and_a_broken_day_stops(tmp_path: pathlib.Path) -> None:
    here = on_this_machine(tmp_path / "here")
    assert [*here] == [day for day in DAYS if day != BROKEN]
    for area, first in here[DAYS[0]].items():
        truth, last = price(DAYS[-1], area), here[DAYS[-1]][area]
        assert abs(last - truth) < abs(first - truth) / 2
    there = emulated(tmp_path / "there")
    assert [*there] == [*here]
    for day, prices in here.items():
        assert there[day] == pytest.approx(prices, rel=1e-4), day
