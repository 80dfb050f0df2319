"""What may change between the runs of an output folder, and what makes it another pipeline."""

import json
import pathlib

import pytest
from past_runs import Output

from stagecraft.components.pusher import owner
from stagecraft.components.pusher.owner import ForeignVersionError
from stagecraft.pipeline.local import layout, ownership
from stagecraft.pipeline.local.ownership import ForeignOutputError
from stagecraft.pipeline.settings import load


@pytest.fixture
def output(tmp_path):
    """The folder of a run of the quickstart that pushed a model."""
    Output(tmp_path / "out").whole("one")
    served(tmp_path / "out" / "serving", "quickstart")
    return tmp_path / "out"


def served(folder: pathlib.Path, preset: str) -> None:
    version = folder / "1700000000"
    version.mkdir(parents=True)
    text = json.dumps(ownership.owner_of(load(preset)))
    (version / owner.FILE).write_text(text)


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("data.source=download",),
        ("train.model=resnet20", "train.epochs=1"),
        ("parallel.strategy=grid", "parallel.stages=2", "parallel.virtual_devices=2"),
        ("evaluate.min_accuracy=0.9", "report.enabled=false", "transform.materialize=true"),
        ("kubeflow.image=mine:1",),
    ],
)
def test_settings_may_change(output, changes):
    ownership.check(load("quickstart", changes), output)


@pytest.mark.parametrize("preset", ["regression", "cifar10", "taxi"])
def test_another_pipeline(output, preset):
    with pytest.raises(ForeignOutputError) as caught:
        ownership.check(load(preset), output)
    error = caught.value
    assert (error.setting, error.value, error.pipeline) == ("--output", str(output), "quickstart")
    assert error.suggestion == f"runs/{preset}"


@pytest.mark.parametrize(
    ("preset", "changes", "key"),
    [
        ("regression", (), "task.name"),
        ("cifar100", (), "data.dataset"),
        ("image_classification", ("data.dataset=cifar100", "data.source=download"), "data.dataset"),
    ],
)
def test_the_same_name_with_another_task_or_target(output, preset, changes, key):
    with pytest.raises(ForeignVersionError) as caught:
        ownership.check(load(preset, ["name=quickstart", *changes]), output)
    assert caught.value.pushed_by[key] != caught.value.owner.get(key)
    assert caught.value.file == str(output / "serving" / "1700000000")


def test_a_serving_folder_elsewhere(tmp_path):
    served(tmp_path / "serving", "taxi")
    settings = load("quickstart", [f"push.directory={tmp_path / 'serving'}"])
    with pytest.raises(ForeignVersionError):
        ownership.check(settings, tmp_path / "out")
    ownership.check(load("taxi", [f"push.directory={tmp_path / 'serving'}"]), tmp_path / "out")


def test_the_newest_run_tells_the_pipeline(tmp_path):
    """An earlier Stagecraft let runs of two pipelines into one folder."""
    Output(tmp_path).whole("one")
    Output(tmp_path, "taxi").begin("two")
    ownership.check(load("taxi"), tmp_path)
    with pytest.raises(ForeignOutputError):
        ownership.check(load("quickstart"), tmp_path)


def test_folders_without_runs(tmp_path):
    ownership.check(load("quickstart"), tmp_path / "missing")
    layout.metadata_db(tmp_path).write_text("")
    ownership.check(load("quickstart"), tmp_path)


def test_a_label_makes_another_pipeline():
    one, two = (
        ownership.owner_of(
            load(
                "regression",
                [
                    f"task.args={{features: {{x: numeric}}, label: {label}}}",
                    "data.example_gen=tfx.components.CsvExampleGen",
                    "data.source=data",
                    "data.infer_schema=true",
                ],
            )
        )
        for label in ("price", "rent")
    )
    assert one | {"task.args.label": "rent"} == two


@pytest.mark.parametrize(
    ("directory", "expected"),
    [(None, "/out/serving"), ("/models/x", "/models/x"), ("s3://bucket/x", "s3://bucket/x")],
)
def test_where_models_are_served(directory, expected):
    assert layout.serving(pathlib.Path("/out"), directory) == expected
