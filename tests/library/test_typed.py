"""A caller's file with the names of the library passes ``mypy --strict``."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

SCRIPT = """
from typing import Any

import stagecraft as sc


def train(model: Any, x: Any, y: Any) -> float:
    sc.virtual_devices(4)
    parallel = sc.Parallel(strategy="grid", stages=2, microbatches=4)
    history: sc.History = sc.fit(
        model, x, y, loss="mse", optimizer="adam", parallel=parallel, metrics=["mae"]
    )
    losses: list[float] = history.history["loss"]
    plan: sc.Plan = sc.plan(model, parallel, "4xA100-40GB", batch_size=64)
    proof: sc.ParityReport = sc.check_parity(model, x, y, parallel=parallel, loss="mse")
    seconds: float | None = plan.step_seconds
    if not proof:
        print(plan, seconds, [row.verdict for row in proof.rows])
    engine: sc.TrainingEngine = sc.engine(model, loss="mse", optimizer="sgd", parallel=parallel)
    logs: dict[str, float] = engine.train_step((x, y))
    engine.restore(engine.state())
    workers: sc.Parallel = sc.connect(sc.Parallel(strategy="multi_worker_mirrored"))
    sc.parallelize(model, workers)
    return losses[-1] + logs["loss"] + engine.step


class Doubled(sc.Metric):
    name = "doubled"
    size = 1


INCOME = sc.estimator.DNNLinearCombinedClassifier(
    linear_feature_columns={"job": sc.estimator.Hashed(10)},
    dnn_feature_columns={"age": sc.estimator.Numeric()},
    dnn_hidden_units=[8],
    label="income",
)


def model_fn(features: Any, labels: Any, mode: str) -> sc.estimator.EstimatorSpec:
    return sc.estimator.EstimatorSpec(mode, loss=features["age"] - labels)


HOUSES = sc.estimator.from_model_fn(
    model_fn, features={"age": sc.estimator.Numeric()}, labels="price"
)


def run_fn(fn_args: Any) -> None:
    task: sc.Task = sc.ExamplesTask("tips_xf", loss="binary_crossentropy", metrics=["auc"])
    sc.train(fn_args, task=task, model="my:model", parallel=sc.Parallel(accumulate=2), steps=3)
    sc.train(fn_args, task=INCOME.task, model=INCOME.model, **INCOME.train_settings)
    sc.train(fn_args, task=HOUSES.task, model=HOUSES.model)
    weights = sc.estimator.load("model.ckpt-1000", INCOME)
    print(len(weights), sc.__version__, sc.Batch(None, None, None))


def tuner_fn(fn_args: Any) -> Any:
    return sc.tuner_fn(fn_args, space={"train.learning_rate": [0.1]}, model="my:model", task="taxi")


try:
    train(None, None, None)
except sc.UserError as other:
    print(other.suggestion)
except sc.SettingError as error:
    name: str = error.setting
"""

WRONG = """
import stagecraft as sc

sc.fit(None, loss="mse", epochs="3")
sc.Parallel(stages="two", strategies="grid")
"""


@pytest.mark.slow
def test_a_callers_file_passes(tmp_path):
    package = tmp_path / "stagecraft"
    package.mkdir()
    folders = ("common", "schemas", "trainer_module")
    for part in (*(ROOT / "library").iterdir(), *(ROOT / name for name in folders)):
        (package / part.name).symlink_to(part)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text(WRONG)
    words = ["--strict", "--explicit-package-bases", "--ignore-missing-imports"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words, "script.py", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert "checked 2 source files" in lines[-1], done.stdout + done.stderr
    # The package's own files are checked by its own settings.
    assert [line for line in lines if line.startswith("script.py")] == []
    assert sum(line.startswith("wrong.py") for line in lines) >= 3
