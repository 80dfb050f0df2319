import json
import os
import pathlib
import subprocess
import sys
import types
from typing import Any

import counting
import pytest

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
from stagecraft.trainer_module.engines.step_metrics import Metrics
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.training.callbacks import Callbacks
from stagecraft.trainer_module.training.early_stopping import Watch

IMAGES = registries.TASKS.get("image_classification")


def watch(**train: Any) -> Watch:
    return Watch(TrainSettings(**train), IMAGES)


def evaluations(*accuracies: float) -> list[Evaluation]:
    return [
        Evaluation(4 * (index + 1), 1.0, accuracy=accuracy)
        for index, accuracy in enumerate(accuracies)
    ]


def test_early_stopping_counts_evaluations_without_improvement():
    stops = watch(early_stopping_patience=2).stops
    assert not stops(evaluations(0.5, 0.6, 0.6))
    assert stops(evaluations(0.5, 0.6, 0.6, 0.1))
    assert not stops(evaluations(0.5, 0.6, 0.6, 0.7))
    assert not watch().stops(evaluations(0.5, 0.5, 0.5, 0.5, 0.5))


def test_the_factor_falls_on_a_plateau():
    arguments = {"factor": 0.5, "patience": 2, "min_lr": 0.05}
    found = watch(schedule="reduce_on_plateau", schedule_args=arguments, learning_rate=0.1)
    assert found.factor([]) == 1
    assert found.factor(evaluations(0.5, 0.5)) == 1
    assert found.factor(evaluations(0.5, 0.5, 0.5)) == 0.5
    assert found.factor(evaluations(*[0.5] * 9)) == 0.5  # the minimum
    assert watch().factor(evaluations(*[0.5] * 30)) == 1


def test_a_value_that_keras_refuses():
    with pytest.raises(SettingError) as caught:
        watch(schedule="reduce_on_plateau", schedule_args={"factor": 2})
    assert caught.value.setting == "train.schedule_args"


class Engine(counting.CountingEngine):
    """One whose accuracy improves no more after step 8."""

    def __init__(self) -> None:
        super().__init__({})
        self.factors: list[float] = []

    def evaluate(self, dataset: Any) -> Any:
        return Metrics(1.0, {"accuracy": min(self.step, 8) / 100}, 100)

    def scale_learning_rate(self, factor: float) -> None:
        self.factors.append(factor)


def test_a_training_stops_early_and_stays_stopped(tmp_path):
    def run(patience: int) -> tuple[Engine, Any]:
        engine = Engine()
        found = watch(early_stopping_patience=patience)
        return engine, counting.train(engine, tmp_path, total=40, watch=found)

    engine, outcome = run(2)
    assert (outcome.steps, engine.step) == (16, 8)  # the best weights
    assert [each.step for each in outcome.evaluations] == [4, 8, 12, 16]
    _, again = run(2)
    assert (again.steps, again.resumed_from) == (16, 16)
    _, longer = run(3)
    assert (longer.steps, longer.resumed_from) == (20, 16)


def test_a_resumed_training_has_the_same_rates(tmp_path):
    arguments = {"factor": 0.5, "patience": 1}
    found = watch(schedule="reduce_on_plateau", schedule_args=arguments)

    def factors(folder: pathlib.Path, *totals: int) -> list[float]:
        engine = Engine()
        for total in totals:
            engine = Engine()
            settings = {"train_schedule": "reduce_on_plateau"}
            counting.train(engine, folder, total=total, watch=found, settings=settings)
        return engine.factors

    whole = factors(tmp_path / "a", 20)
    assert whole == [1, 1, 1, 0.5, 0.25, 0.125]
    assert factors(tmp_path / "b", 12, 20) == [0.5, 0.25, 0.125]


def test_without_evaluations_it_is_refused(tmp_path):
    with pytest.raises(UserError) as caught:
        found = watch(early_stopping_patience=1)
        counting.train(Engine(), tmp_path, val=False, watch=found)
    assert caught.value.setting == "train.early_stopping_patience"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a callback of the module ``noting`` was called with."""
    called: list[Any] = []

    class Notes:
        def on_train_begin(self, logs: Any) -> None:
            called.append(("begin", logs))

        def on_step(self, step: int, logs: Any) -> None:
            called.append((step, logs))

        def on_epoch_end(self, epoch: int, logs: Any) -> None:
            called.append((f"epoch {epoch}", logs))

        def on_train_end(self, logs: Any) -> None:
            called.append(("end", logs))

    class Failing:
        def on_step(self, step: int, logs: Any) -> None:
            raise ValueError("no more")

    def fails() -> None:
        raise RuntimeError("cannot be made")

    module = types.SimpleNamespace(
        Notes=Notes, Failing=Failing, Nothing=object, fails=fails, __file__="noting.py"
    )
    monkeypatch.setitem(sys.modules, "noting", module)  # type: ignore[arg-type]
    return called


def test_callbacks_are_called_at_their_times(calls, tmp_path):
    engine = Engine()
    counting.train(engine, tmp_path, total=10, callbacks=Callbacks(["noting:Notes"], 5))
    names = [name for name, _ in calls]
    assert [name for name in names if isinstance(name, str)] == [
        "begin",
        "epoch 0",
        "epoch 1",
        "end",
    ]
    assert [name for name in names if isinstance(name, int)][-1] == 10
    assert names.index(5) < names.index("epoch 0") < names.index("epoch 1")
    by_name = dict(calls)
    assert {"loss", "learning_rate", "images_per_second"} <= by_name[5].keys()
    assert "val_loss" not in by_name["epoch 0"]  # evaluations are at 4 and 8, and at the end
    assert by_name["epoch 1"]["val_accuracy"] == 0.08
    assert by_name["end"] == by_name[10]
    # Epochs make no checkpoints.
    assert sorted(int(path.name) for path in tmp_path.glob("[0-9]*")) == [8, 10]
    counting.train(Engine(), tmp_path, total=10, callbacks=Callbacks(["noting:Notes"], 5))
    assert len(calls) == len(names)  # nothing was trained


def test_other_workers_call_none_but_end_epochs_alike(calls):
    other = Callbacks(["noting:Notes"], 5, chief=False)
    other.begin()
    assert (other.epoch_steps, calls) == (5, [])
    assert Callbacks([], 5).epoch_steps == 0


def test_callbacks_that_fail(calls, tmp_path):
    failing = Callbacks(["noting:Failing"], 5)
    with pytest.raises(UserError) as caught:
        counting.train(Engine(), tmp_path, callbacks=failing)
    assert (caught.value.setting, caught.value.value) == ("train.callbacks", "noting:Failing")
    for name in ("Nothing", "fails", "Note"):
        with pytest.raises(UserError):
            Callbacks([f"noting:{name}"], 5)


@pytest.mark.slow
def test_a_training_with_all_of_them(make_fn_args, tmp_path):
    """A rate of nearly 0 improves nothing, so that the second evaluation is not better."""
    fn_args = make_fn_args(
        tmp_path,
        train_optimizer="lion",
        train_optimizer_args='{"beta_1": 0.8}',
        train_learning_rate=1e-12,
        train_ema_decay=0.0,
        train_weight_decay=0.0,
        train_schedule="reduce_on_plateau",
        train_schedule_args='{"factor": 0.5, "patience": 1}',
        train_early_stopping_patience=2,
        train_steps=20,
        train_callbacks="user_models:Epochs",
        train_frozen='["bias$", "batch_normalization"]',
    )
    (tmp_path / "fn_args.json").write_text(json.dumps(vars(fn_args)))
    here = pathlib.Path(__file__).parent.parent
    paths = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH", "")]))
    subprocess.run(
        [sys.executable, here / "train.py", tmp_path / "fn_args.json"],
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
    )
    record = json.loads((tmp_path / "model_run" / "record.json").read_text())
    assert [each["step"] for each in record["evaluations"]] == [2, 4, 6]
    assert record["steps"] == 6
    assert json.loads((tmp_path / "epochs.json").read_text()) == {"steps": 6}
