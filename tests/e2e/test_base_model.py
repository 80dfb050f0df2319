"""A training continues the model of an earlier run, day after day."""

import json
import logging
import pathlib

import numpy as np
import pytest

from stagecraft.components.anomaly_gate.executor import AnomaliesError
from stagecraft.pipeline.local.runners import LocalRunner
from stagecraft.pipeline.pipeline import create_pipeline
from stagecraft.pipeline.settings import PipelineSettings

TOWNS = {"north": 1.0, "south": 2.0, "west": 3.0, "east": 4.0}


def write(folder: pathlib.Path, towns: list[str], unit: float = 1.0) -> str:
    folder.mkdir()
    draw = np.random.default_rng(3)
    lines = ["town,y"]
    for _ in range(300):
        town = towns[min(int(draw.exponential(0.7)), len(towns) - 1)]
        lines.append(f"{town},{unit * (TOWNS[town] + draw.normal(0, 0.1)):.6f}")
    (folder / "rows.csv").write_text("\n".join(lines))
    return str(folder)


def settings(source: str, **train: object) -> PipelineSettings:
    features = {"town": {"kind": "vocabulary", "size": 8}}
    return PipelineSettings.model_validate(
        {
            "data": {
                "example_gen": "tfx.components.CsvExampleGen",
                "infer_schema": True,
                "source": source,
            },
            "task": {"name": "regression", "args": {"features": features, "label": "y"}},
            "train": {"model": "linear", "steps": 4, **train},
            "drift": {"features": {"y": 0.95}},
            "evaluate": {"min_accuracy": 0, "thresholds": {}, "better_than_constant": False},
            "parallel": {"strategy": "one_device"},
            "report": {"enabled": False},
        }
    )


@pytest.mark.full
@pytest.mark.slow
def test_day_after_day(tmp_path, caplog):
    warm = {
        "initial_weights": "last_pushed",
        "warm_start": {"steps": 2, "learning_rate": 1e-12},
    }

    def run(day: str) -> list[dict]:
        """The records of the trainings of the run."""
        before = {*tmp_path.glob("out/pipeline_root/Trainer/model_run/*")}
        runner = LocalRunner()
        runner.run(create_pipeline(settings(days[day], **warm), tmp_path / "out"))
        made = {*tmp_path.glob("out/pipeline_root/Trainer/model_run/*")} - before
        return [json.loads((each / "record.json").read_text()) for each in made]

    caplog.set_level(logging.INFO, "stagecraft.progress")
    towns = ["north", "south", "west"]
    days = {
        "first": write(tmp_path / "first", towns),
        "second": write(tmp_path / "second", [*reversed(towns), "east"]),
        "broken": write(tmp_path / "broken", towns, unit=1000.0),
    }
    [first] = run("first")
    assert first["start"]["model"] is None and first["start"]["note"] in caplog.text
    assert first["initial_weights"] is None and first["steps"] == 4
    [second] = run("second")
    assert second["start"]["wanted"] == "last_pushed" and second["steps"] == 2
    # The model that the first run made; the second one is of other data.
    assert second["start"]["model"].startswith(f"{tmp_path}/out/pipeline_root/Trainer/model/")
    [counts] = second["initial_weights"]["rows"].values()
    assert counts == {"carried": 3, "new": 1, "dropped": 0}
    with pytest.raises(AnomaliesError) as stopped:
        run("broken")
    assert {each.feature for each in stopped.value.findings} == {"y"}
    assert run("second") == []  # a day that is repeated is cached
    assert run("first") == []
