"""``stagecraft drill`` chooses, shows, and says when something is not as it should be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stagecraft.pipeline.cli import drilling
from stagecraft.pipeline.drill.scenarios import SCENARIOS, Row


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, Row]:
    """Scenario -> what comes of it; nothing is trained."""
    given: dict[str, Row] = {}

    class NoDrill:
        def __init__(self, *_: Any):
            pass

    def stand_in(name: str) -> Any:
        return (SCENARIOS[name][0], lambda drill, _: given[name])

    monkeypatch.setattr(drilling, "Drill", NoDrill)
    monkeypatch.setattr(drilling, "SCENARIOS", {name: stand_in(name) for name in SCENARIOS})
    return given


GOOD = Row(passed=True, detected=2.04, recovered=18.4, steps_lost=4, equal=True)
BAD = Row(passed=False, equal=False, said="the weights are others")


def test_it_lists(stagecraft):
    listed = stagecraft("drill", "--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(SCENARIOS)
    as_json = json.loads(stagecraft("drill", "--list", "--json").stdout)
    assert list(as_json) == list(SCENARIOS)


def test_what_came_of_it(stagecraft, rows):
    rows["worker-killed"] = GOOD
    done = stagecraft("drill", "--scenario", "worker-killed")
    assert done.code == 0
    header, line = done.stdout.splitlines()[-2:]
    assert header.split()[:3] == ["scenario", "detected", "after"]
    assert line.split() == [
        *("worker-killed", "2.0", "s", "18.4", "s", "4", "equal", "0"),
        *("as", "it", "should"),
    ]


def test_not_as_it_should_be(stagecraft, rows):
    rows |= {"worker-killed": GOOD, "nan-loss": BAD}
    done = stagecraft("drill", "--scenario", "worker-killed", "--scenario", "nan-loss", "--json")
    assert done.code == 1
    assert "nan-loss: not as it should be: the weights are others" in done.stderr
    assert "drill.log" in done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["passed"] is False
    assert [each["scenario"] for each in found["scenarios"]] == ["worker-killed", "nan-loss"]
    assert found["scenarios"][0]["detected"] == 2.04


def test_a_scenario_that_is_not_there(stagecraft):
    done = stagecraft("drill", "--scenario", "worker-kiled")
    assert done.code == 1
    assert "there is no 'worker-kiled'; did you mean worker-killed?" in done.stderr


def test_a_setting_that_is_not_there(stagecraft):
    done = stagecraft("drill", "--set", "train.modle=cnn", "--json")
    assert done.code == 1
    assert "did you mean 'model'?" in json.loads(done.stdout)["error"]
