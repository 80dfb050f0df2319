"""A caller's file with the names of the library passes ``mypy --strict``."""

import pathlib
import subprocess
import sys

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
    proof: sc.Proof = sc.check_parity(model, x, parallel, y, loss="mse")
    seconds: float | None = plan.seconds
    if not proof:
        print(plan, seconds, [row.verdict for row in proof.rows])
    with sc.engine(model, "mse", "sgd", parallel, batch_size=8) as engine:
        logs: dict[str, float] = engine.train_step((x, y))
        engine.restore(engine.state())
    return losses[-1] + logs["loss"] + engine.step


try:
    train(None, None, None)
except sc.SettingError as error:
    name: str = error.setting
"""

WRONG = """
import stagecraft as sc

sc.fit(None, loss="mse", epochs="3")
sc.Parallel(stages="two", strategies="grid")
"""


def mypy(folder: pathlib.Path, text: str) -> str:
    package = folder / "stagecraft"
    if not package.exists():
        package.mkdir()
        parts = [*(ROOT / "library").iterdir(), *(ROOT / p for p in ("schemas", "trainer_module"))]
        for part in parts:
            (package / part.name).symlink_to(part)
    (folder / "script.py").write_text(text)
    words = [sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases"]
    # The package's own files are checked by its own settings.
    words += ["--python-version", "3.10", "--ignore-missing-imports", "script.py"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    found = done.stdout + done.stderr
    assert "checked 1 source file" in found, found
    return "\n".join(line for line in found.splitlines() if line.startswith("script.py"))


def test_a_callers_file_passes(tmp_path):
    assert mypy(tmp_path, SCRIPT) == ""
    assert mypy(tmp_path, WRONG).count("[arg-type]") >= 1
