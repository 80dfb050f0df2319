"""What a second run executes: only what changed, whether data, schema, settings or code."""

import pathlib
import shutil

import pytest
from support import run

from stagecraft.schemas import features

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]  # six runs; test_interrupt has two

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALL = [
    "Cifar10ExampleGen", "StatisticsGen", "ImportSchema", "AnomalyGate", "Transform",
    "Trainer", "Baseline", "Evaluator", "Pusher",
]  # fmt: skip


def test_only_what_changed_runs_again(tmp_path):
    # A copy of the package whose lines can be changed, first on the module path.
    package = tmp_path / "copy" / "stagecraft"
    shutil.copytree(ROOT / "library", package)
    for folder in ("common", "schemas", "trainer_module", "components", "pipeline"):
        shutil.copytree(ROOT / folder, package / folder)
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(pathlib.Path(features.DATASETS["cifar10"].schema_file).read_text())
    output = tmp_path / "out"
    words = ["--set", f"data.schema_file={schema}"]

    def executed(*more):
        done = run(output, *words, *more, path=package.parent)
        assert set(done.states) == set(ALL)
        return done.executed()

    def append(file, line):
        file.write_text(file.read_text() + line + "\n")

    assert executed() == set(ALL)
    assert executed() == {"Baseline"}

    append(package / "trainer_module" / "training" / "loop.py", "CHANGED = 1")
    assert executed() == {"Trainer", "Baseline", "Evaluator", "Pusher"}

    append(package / "trainer_module" / "preprocessing.py", "CHANGED = 1")
    assert executed() == {"Transform", "Trainer", "Baseline", "Evaluator", "Pusher"}

    append(schema, 'string_domain { name: "unused" value: "x" }')
    changed = executed()
    assert {"ImportSchema", "AnomalyGate", "Transform", "Trainer"} <= changed
    assert not changed & {"Cifar10ExampleGen", "StatisticsGen"}

    words += ["--set", "data.sample_train=410"]
    assert executed() >= set(ALL) - {"ImportSchema"}
