"""``stagecraft drill`` chooses, shows, and says when something is not as it should be."""

import json

import pytest

from stagecraft.pipeline.drill import drill, scenarios
from stagecraft.pipeline.drill.scenarios import SCENARIOS, Result, Scenario


@pytest.fixture
def results(monkeypatch):
    """Scenario -> its result; nothing is trained."""
    results = {}

    class NoDrill:
        def __init__(self, *_):
            pass

    def stand_in(name):
        return Scenario(SCENARIOS[name].description, lambda drill, _: results[name])

    monkeypatch.setattr(drill, "Drill", NoDrill)
    monkeypatch.setattr(scenarios, "SCENARIOS", {name: stand_in(name) for name in SCENARIOS})
    return results


GOOD = Result(passed=True, detected=2.04, recovered=18.4, steps_lost=4, equal=True)
BAD = Result(passed=False, equal=False, said="the weights are others")


def test_it_lists(stagecraft):
    listed = stagecraft("drill", "--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(SCENARIOS)
    as_json = json.loads(stagecraft("drill", "--list", "--json").stdout)
    assert list(as_json) == list(SCENARIOS)


def test_results(stagecraft, results):
    results["worker-killed"] = GOOD
    done = stagecraft("drill", "--scenario", "worker-killed")
    assert done.code == 0
    header, line = done.stdout.splitlines()[-2:]
    assert header.split()[:3] == ["scenario", "detected", "after"]
    assert line.split() == ["worker-killed", "2.0", "s", "18.4", "s", "4", "equal", "0", "passed"]


def test_a_failed_scenario(stagecraft, results):
    results |= {"worker-killed": GOOD, "nan-loss": BAD}
    done = stagecraft("drill", "--scenario", "worker-killed", "--scenario", "nan-loss", "--json")
    assert done.code == 1
    assert f"nan-loss failed: {BAD.said}" in done.stderr
    assert "drill.log" in done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["passed"] is False
    assert [each["scenario"] for each in found["scenarios"]] == ["worker-killed", "nan-loss"]
    assert found["scenarios"][0]["detected"] == 2.04


@pytest.mark.parametrize(
    "arguments", [("--scenario", "worker-kiled"), ("--set", "train.modle=cnn")]
)
def test_errors(refused, arguments):
    assert refused("drill", *arguments)["passed"] is False
