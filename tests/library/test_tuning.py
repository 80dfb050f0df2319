"""The search of TFX's Tuner: trials are trainings, and refusals are failed trials."""

from __future__ import annotations

import json
import pathlib
import types
from typing import Any

import houses_task
import pytest
from made_once import made_once
from tfx.components.tuner import executor as tfx_tuner
from tfx.types import standard_artifacts

import stagecraft as sc
from stagecraft.common.errors import UserError

GRID = {"strategy": "grid", "microbatches": 2, "virtual_devices": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return made_once(tmp_path_factory, "houses", houses_task.write_data)


@pytest.fixture
def fn_args(data: pathlib.Path, tmp_path: pathlib.Path) -> types.SimpleNamespace:
    """As TFX's Tuner passes them."""
    return types.SimpleNamespace(
        train_files=[str(data / "examples" / "Split-train" / "*")],
        eval_files=[str(data / "examples" / "Split-val" / "*")],
        transform_graph_path=str(data / "transform_graph"),
        schema_path=None,
        working_dir=str(tmp_path / "work"),
        train_steps=4,
        custom_config=None,
        serving_model_dir=None,
        model_run_dir=None,
        hyperparameters=None,
    )


def build() -> Any:
    import keras

    inputs = {name: keras.Input([1], name=name) for name in houses_task.NUMBERS}
    hidden = keras.layers.Dense(4, name="hidden")(keras.layers.concatenate(list(inputs.values())))
    return keras.Model(inputs, keras.layers.Dense(1, name="price")(hidden))


def options(**more: Any) -> dict[str, Any]:
    """Keywords of tuner_fn; in this process alone, since a trial is not what is tested."""
    task = sc.ExamplesTask("price", features=houses_task.NUMBERS, loss="mse", metrics=["mae"])
    found = {"task": task, "model": build, "optimizer": "sgd", "batch_size": 20}
    return {
        **found,
        "space": {"train.learning_rate": {"min": 1e-3, "max": 0.1, "log": True}},
    } | more


def values(result: Any) -> list[Any]:
    """The values of all trials, in their order."""
    oracle = result.tuner.oracle
    return [oracle.trials[name].hyperparameters.values for name in oracle.start_order]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Trials of no time, whose result is their learning rate."""
    seen: list[Any] = []

    def run(prepared: Any) -> None:
        folder = pathlib.Path(prepared.fn_args.model_run_dir)
        folder.mkdir(parents=True)
        seen.append(prepared)
        rate = prepared.settings.train.learning_rate
        (folder / "record.json").write_text(json.dumps({"best": {"mae": rate}}))

    from stagecraft import tuning

    monkeypatch.setattr(tuning.training, "run_apart", run)
    monkeypatch.setattr(
        tuning.record,
        "read",
        lambda path: json.loads(pathlib.Path(path, "record.json").read_text()),
    )
    return seen


@pytest.mark.full
def test_topologies_and_rates(fn_args, tmp_path, caplog):
    """As the Tuner runs it, and writes the best."""
    space = {"parallel.stages": [1, 2], "parallel.replicas": [1, 2], "train.learning_rate": [0.05]}
    more = options(
        space=space, algorithm="grid_search", parallel=sc.Parallel(**GRID), optimizer="sgd"
    )
    tuner, fit_kwargs = sc.tuner_fn(fn_args, **more)
    with caplog.at_level("WARNING", "stagecraft.progress"):
        tuner.search(**fit_kwargs)
    assert len(tuner.oracle.trials) == 4
    (refused,) = tuner.refused.values()
    assert "parallel.virtual_devices: 4" in refused and refused in caplog.text
    scores = [trial.score for trial in tuner.oracle.get_best_trials(3)]
    assert max(scores) - min(scores) < 1e-4 * max(scores)  # one computation
    best, results = standard_artifacts.HyperParameters(), standard_artifacts.TunerResults()
    best.uri, results.uri = str(tmp_path / "best"), str(tmp_path / "results")
    tfx_tuner.write_best_hyperparameters(
        tuner, {"best_hyperparameters": [best], "tuner_results": [results]}
    )
    (file,) = (tmp_path / "best").iterdir()
    fn_args.hyperparameters = json.loads(file.read_text())
    assert fn_args.hyperparameters["values"].keys() == space.keys()


def test_the_best_wins_and_a_seed_repeats_the_search(fn_args, quick, tmp_path):
    first = sc.tuner_fn(fn_args, **options(trials=4))
    first.tuner.search()
    second = sc.tuner_fn(fn_args, **options(trials=4, directory=tmp_path / "again"))
    second.tuner.search()
    assert values(first) == values(second) and len(quick) == 8
    other = sc.tuner_fn(fn_args, **options(trials=4, seed=7, directory=tmp_path / "other"))
    other.tuner.search()
    assert values(other) != values(first)
    best = first.tuner.get_best_hyperparameters()[0].values
    assert best == min(values(first), key=lambda each: each["train.learning_rate"])  # least mae


def test_a_search_continues(fn_args, quick):
    sc.tuner_fn(fn_args, **options(trials=2)).tuner.search()
    again = sc.tuner_fn(fn_args, **options(trials=2))
    again.tuner.search()
    assert len(quick) == 2 and len(values(again)) == 2


def test_all_of_it_from_the_pipeline(fn_args, quick):
    """Settings and space of ``custom_config``: no code of the user's."""
    fn_args.custom_config = {
        "settings": {"task_name": "stagecraft_given:nothing", "train_steps": 3},
        "tune": {"space": {"train.learning_rate": [0.1, 0.2]}, "algorithm": "grid_search"},
    }
    task = options()["task"]
    sc.tuner_fn(fn_args, task=task, model="my_models:build").tuner.search()
    assert [each.settings.train.steps for each in quick] == [3, 3]
    assert sorted(each.settings.train.learning_rate for each in quick) == [0.1, 0.2]
    assert len({each.fn_args.model_run_dir for each in quick}) == 2


@pytest.mark.parametrize(
    ("more", "setting"),
    [
        ({"space": None}, "space"),
        ({"space": {}}, "space"),
        ({"space": {"parallel.stagse": [1]}}, "hyperparameters"),
        ({"space": {"train.seed": 3}}, "space.train.seed"),
        ({"space": {"train.seed": {"min": 3}}}, "space.train.seed"),
        ({"space": {"train.seed": {"min": 3, "max": 1}}}, "space.train.seed"),
        ({"space": {"train.seed": [1, "two"]}}, "space.train.seed"),
        ({"algorithm": "magic"}, "algorithm"),
        ({"trials": 0}, "trials"),
        ({"batch_size": 0}, "train.batch_size"),
    ],
)
def test_refusals(fn_args, more, setting):
    with pytest.raises(UserError) as error:
        sc.tuner_fn(fn_args, **options(**more))
    assert error.value.setting == setting


def test_a_search_whose_trials_all_fail(fn_args, quick):
    """Neither number divides the batch of 20 examples into equal parts."""
    space = {"parallel.microbatches": [3, 7]}
    found = sc.tuner_fn(
        fn_args,
        **options(
            space=space, algorithm="grid_search", parallel=sc.Parallel(strategy="grid", stages=2)
        ),
    )
    with pytest.raises(UserError) as error:
        found.tuner.search()
    assert error.value.setting == "space" and len(found.tuner.refused) == 2
    assert not quick
