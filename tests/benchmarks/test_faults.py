"""Each fault of the drill, in real processes: some with the slow tests, the rest on demand."""

import pytest
from faults.scenarios import SCENARIOS
from faults.trainings import Drill

from stagecraft.pipeline.settings import load

SELECTED = ("served-worker-killed",)
"""Among the slow tests; tests of cluster jobs and docs/reference/workers.md kill workers, too."""


@pytest.fixture(scope="module")
def drill(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drill")
    settings = load("quickstart", ("data.sample_train=600", "data.sample_test=100"))
    with (folder / "log").open("ab", buffering=0) as log:
        yield Drill(settings, folder, log)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SELECTED else pytest.mark.full)
        for name in SCENARIOS
    ],
)
def test_recovery(drill, name):
    result = SCENARIOS[name].run(drill, name)
    tail = (drill.folder / "log").read_text(errors="replace")[-3000:]
    assert result.passed, f"{result}\n{tail}"
