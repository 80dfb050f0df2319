import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import tensorflow as tf

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.data import input_data
from stagecraft.trainer_module.engines.strategy_engine import StrategyEngine
from stagecraft.trainer_module.run_fn import run_fn
from stagecraft.trainer_module.training import record
from stagecraft.trainer_module.training.monitoring import curve

MakeFnArgs = Callable[..., types.SimpleNamespace]
HERE = pathlib.Path(__file__).parent


def _states(folder: pathlib.Path) -> dict[str, bytes]:
    """Every array of the kept checkpoints, bit for bit."""
    store = Checkpoints(folder / "checkpoints")
    return {
        f"{step}/{name}": value.tobytes()
        for step in store.steps()
        for name, value in store.load(step).state.items()
    }


def _scalars(folder: pathlib.Path, split: str) -> dict[str, list[int]]:
    """Tag -> steps, from TensorBoard's files."""
    steps: dict[str, list[int]] = {}
    for path in sorted((folder / "model_run" / split).iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
    return steps


class Trained(NamedTuple):
    """A training that nothing has disturbed; tests read it only."""

    fn_args: types.SimpleNamespace
    folder: pathlib.Path
    events: list[dict[str, Any]]
    """Of its progress."""


@pytest.fixture(scope="module")
def trained(make_fn_args: MakeFnArgs, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    fn_args = make_fn_args(folder)
    events: list[dict[str, Any]] = []

    class Listener(logging.Handler):
        def emit(self, entry: logging.LogRecord) -> None:
            if hasattr(entry, "progress"):
                events.append(entry.progress)

    logger, listener = logging.getLogger("stagecraft.progress"), Listener()
    level = logger.level
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        logger.setLevel(logging.INFO)  # which clears what the logger remembers of its level
        logger.addHandler(listener)
        try:
            run_fn(fn_args)
        finally:
            logger.removeHandler(listener)
            logger.setLevel(level)
    return Trained(fn_args, folder, events)


def test_trains_records_and_exports(trained):
    folder = trained.folder
    notes = record.read(folder / "model_run")
    assert notes["steps"] == 6
    assert [entry["step"] for entry in notes["evaluations"]] == [2, 4, 6]
    assert notes["best"] in notes["evaluations"]
    assert notes["images_per_second"] > 0
    assert notes["seconds"].keys() == {"train", "evaluate", "save", "done", "export"}
    assert notes["examples"] == {"train": 24, "val": 10}
    assert notes["settings"]["train_batch_size"] == 8
    assert notes["topology"] == {
        "strategy": "one_device",
        "devices": ["CPU:0"],
        "stages": 1,
        "shards": 1,
        "workers": 1,
        "worker": 0,
    }

    assert _scalars(folder, "val") == {"loss": [2, 4, 6], "accuracy": [2, 4, 6]}
    train = _scalars(folder, "train")
    assert train.keys() == {"loss", "accuracy", "learning_rate", "images_per_second"}
    assert train["loss"][-1] == 6

    last, exporting = trained.events[-2:]
    assert last["phase"] == "train" and last["step"] == last["total"] == 6
    assert exporting == {"phase": "export"}
    assert json.dumps(trained.events)

    assert os.listdir(folder / "model") == ["Format-Serving"]


def test_the_weights_of_examples_reach_the_training(trained, make_fn_args, tmp_path):
    fn_args = make_fn_args(tmp_path)
    fn_args.train_files = sorted(tf.io.gfile.glob(fn_args.train_files))
    _, *others = fn_args.train_files
    fn_args.custom_config[input_data.WEIGHTS] = [4.0, *(1.0 for _ in others)]
    run_fn(fn_args)
    found, expected = _states(tmp_path), _states(trained.folder)
    assert found.keys() == expected.keys()
    kernels = [name for name in found if name.endswith("/kernel")]
    assert kernels and all(found[name] != expected[name] for name in kernels)


@pytest.mark.slow
def test_the_same_weights_in_another_process(trained, make_fn_args, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    (there / "fn_args.json").write_text(json.dumps(vars(make_fn_args(there))))
    subprocess.run(
        [sys.executable, HERE / "train.py", there / "fn_args.json"], check=True, capture_output=True
    )
    assert _states(trained.folder) == _states(there)
    for name in ("variables.index", "variables.data-00000-of-00001"):
        here, other = (
            (side / "model" / "Format-Serving" / "variables" / name).read_bytes()
            for side in (trained.folder, there)
        )
        assert here == other, name


@pytest.mark.slow
def test_a_retry_goes_on_exactly(trained, make_fn_args, tmp_path, monkeypatch):
    interrupted = make_fn_args(tmp_path / "interrupted")
    with monkeypatch.context() as patch:
        evaluate, calls = StrategyEngine.evaluate, []

        def evaluate_once(self: StrategyEngine, dataset: Any) -> Any:
            calls.append(self.step)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return evaluate(self, dataset)

        patch.setattr(StrategyEngine, "evaluate", evaluate_once)
        with pytest.raises(KeyboardInterrupt):
            run_fn(interrupted)
    assert Checkpoints(interrupted.working_dir).steps() == [2]
    assert not os.path.exists(interrupted.serving_model_dir)

    interrupted.model_run_dir += "_of_the_retry"
    run_fn(interrupted)
    assert record.read(interrupted.model_run_dir)["resumed_from"] == 2
    assert _states(trained.folder) == _states(tmp_path / "interrupted")


@pytest.mark.full
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_a_killed_training_of_the_fast_recipe_goes_on_exactly(make_fn_args, tmp_path, precision):
    """A pull follows steps 3 and 6, the checkpoints are of steps 2 and 4."""
    recipe = {
        "train_model": "airbench_4_6_8",
        "train_optimizer": "muon",
        "train_optimizer_args": '{"momentum": 0.6, "iterations": 3, "normalize_weights": true}',
        "train_schedule": "triangular",
        "train_label_smoothing": 0.2,
        "train_learning_rate_multipliers": '{"norm/beta": 64}',
        "train_freeze_after": '{"whitening/bias": 0.5}',
        "train_augment": "alternating_flip,translate",
        "train_ema_decay": 0.0,
        "train_lookahead": 3,
        "train_keep": 9,
        "parallel_precision": precision,
    }

    def train(name: str, **more: Any) -> int:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        fn_args = make_fn_args(folder, **recipe, **more)
        (folder / "fn_args.json").write_text(json.dumps(vars(fn_args)))
        command = [sys.executable, HERE / "train.py", folder / "fn_args.json"]
        return subprocess.run(command, capture_output=True).returncode

    assert train("undisturbed") == 0
    assert train("killed", train_callbacks="user_models:Kill") == -signal.SIGKILL
    assert Checkpoints(tmp_path / "killed" / "checkpoints").steps()
    assert not (tmp_path / "killed" / "model" / "Format-Serving").exists()
    assert train("killed") == 0
    assert record.read(str(tmp_path / "killed" / "model_run"))["resumed_from"] in (2, 4)
    expected = _states(tmp_path / "undisturbed")
    assert any(name.endswith("ema/logits/kernel") for name in expected)
    assert _states(tmp_path / "killed") == expected


def test_a_finished_training_is_only_exported(trained, tmp_path, monkeypatch):
    first = trained.fn_args
    again = types.SimpleNamespace(**vars(first))
    again.model_run_dir = str(tmp_path / "model_run")
    again.serving_model_dir = str(tmp_path / "model" / "Format-Serving")

    def refuse(*_: Any) -> None:
        pytest.fail("it was trained again")

    monkeypatch.setattr(StrategyEngine, "train", refuse)
    run_fn(again)
    before, after = record.read(first.model_run_dir), record.read(again.model_run_dir)
    for key in ("steps", "best", "evaluations", "images_per_second"):
        assert before[key] == after[key]
    curves = [pathlib.Path(run.model_run_dir, curve.FILE_NAME) for run in (first, again)]
    assert curve.read(curves[0].read_text())[-1].step == before["steps"]
    assert curves[0].read_bytes() == curves[1].read_bytes()
    variables = "variables/variables.data-00000-of-00001"
    assert (pathlib.Path(first.serving_model_dir) / variables).read_bytes() == (
        pathlib.Path(again.serving_model_dir) / variables
    ).read_bytes()


@pytest.mark.parametrize("model", ["subclassed", "stages", "same_names"])
def test_other_kinds_of_models(make_fn_args, tmp_path, model):
    run_fn(make_fn_args(tmp_path, train_model=f"user_models:{model}", train_steps=2))
    loaded = tf.saved_model.load(str(tmp_path / "model" / "Format-Serving"))
    images = tf.zeros([3, 32, 32, 3], tf.uint8)
    assert loaded.signatures["serving_images"](images=images)["logits"].shape == (3, 4)


def test_a_model_without_anything_to_train_is_refused(make_fn_args, tmp_path):
    with pytest.raises(UserError) as caught:
        run_fn(make_fn_args(tmp_path, train_model="user_models:frozen"))
    assert caught.value.setting == "train.model"


def test_a_diverging_training_says_where(make_fn_args, tmp_path):
    fn_args = make_fn_args(tmp_path, train_model="user_models:diverging", train_optimizer="sgd")
    with pytest.raises(UserError, match=r"(nan|inf) at step 2\b"):
        run_fn(fn_args)
    assert Checkpoints(fn_args.working_dir).steps() == []
    assert not os.path.exists(fn_args.serving_model_dir)


@pytest.mark.slow
def test_tfxs_own_trainer_gives_no_working_dir(make_fn_args, tmp_path):
    fn_args = make_fn_args(tmp_path, train_steps=1)
    fn_args.working_dir = None
    run_fn(fn_args)
    assert Checkpoints(tmp_path / "model_run" / "checkpoints").steps() == [1]


def test_a_model_that_keras_cannot_load_back_is_refused_before_it_is_trained(
    make_fn_args, tmp_path
):
    """A class of its own, which Keras finds only if it is registered."""
    fn_args = make_fn_args(tmp_path, train_model="user_models:subclassed", train_export_keras=1)
    with pytest.raises(SettingError) as refused:
        run_fn(fn_args)
    assert refused.value.setting == "train.export_keras"
    assert not (tmp_path / "checkpoints").exists() or not _states(tmp_path)
