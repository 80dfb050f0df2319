"""Runs on what earlier ones left: nothing is pushed twice, nothing is mixed, nothing stays."""

import os

import pytest
from damages import WAYS
from support import TINY, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The first run, its output, and the folder that it had for temporary files."""
    output = tmp_path_factory.mktemp("again") / "out"
    temporary = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        patch.setenv("PYTHONHASHSEED", "1")
        done = run(output)
    return done, output, temporary


@pytest.fixture(scope="module")
def output(first):
    return first[1]


def _versions(output):
    return sorted(path.name for path in (output / "serving").iterdir())


def test_a_run_leaves_no_temporary_file(first):
    done, _, temporary = first
    assert os.listdir(temporary) == []
    assert "Baseline: done" in done.stderr and "no blessed model" in done.stderr


@pytest.mark.full
def test_a_training_that_took_no_step_pushes_no_version(output, monkeypatch):
    """Also where Python gives a set another order, as each process does."""
    monkeypatch.setenv("PYTHONHASHSEED", "2")
    before = _versions(output)
    done = run(output, "--from", "Trainer")
    assert {"Trainer", "Evaluator", "Pusher"} <= done.executed()
    assert _versions(output) == before
    assert "already pushed" in done.stderr
    assert f"pushed as version {before[-1]}" in done.stderr
    assert done.result["pushed"] == str(output / "serving" / before[-1])


def test_a_cached_rerun_does_not_say_that_no_model_is_blessed(output):
    done = run(output)
    assert done.states["Trainer"] == "cached", done.states
    assert "no blessed model" not in done.stderr


def test_a_served_version_that_is_gone_is_pushed_again(output, tmp_path):
    (output / "serving" / _versions(output)[-1]).rename(tmp_path / "moved")
    done = run(output)
    assert done.states["Trainer"] == "cached" and done.states["Pusher"] == "done"
    assert os.path.exists(f"{done.result['pushed']}/saved_model.pb")
    assert any("is gone" in note for note in done.result["notes"])


@pytest.mark.parametrize(
    ("pattern", "way", "start"),
    [
        pytest.param(
            "Cifar10ExampleGen/examples/*/Split-eval/*-00001-of-*",
            "cut",
            "Evaluator",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "StatisticsGen/statistics/*/Split-train/*",
            "emptied",
            "AnomalyGate",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "Transform/transform_graph/*/transform_fn/saved_model.pb",
            "removed",
            "Trainer",
            marks=pytest.mark.full,
        ),
        ("Trainer/model/*/*/variables/variables.data*", "one bit", "Pusher"),
    ],
)
def test_a_step_names_a_damaged_input(output, pattern, way, start):
    path = max(output.glob(f"pipeline_root/{pattern}"), key=os.path.getmtime)
    content = path.read_bytes()
    before = _versions(output)
    WAYS[way](path)
    done = run(output, "--from", start, code=1)
    path.write_bytes(content)
    assert str(path) in done.result["error"]
    maker = path.relative_to(output / "pipeline_root").parts[0]
    assert f"--from {maker}" in done.result["error"]
    assert done.states[start] == "failed"
    assert _versions(output) == before


@pytest.mark.full
def test_a_lost_store_mixes_nothing(output):
    shards = {path: path.read_bytes() for path in output.glob("pipeline_root/*/examples/**/data*")}
    assert shards
    (output / "metadata.db").rename(output / "lost.db")
    more = ("data.sample_train=500", *TINY[1:])
    refused = run(output, settings=more, code=1)
    assert "pipeline_root away" in refused.result["error"]
    assert {path: path.read_bytes() for path in shards} == shards

    (output / "pipeline_root").rename(output / "kept")
    done = run(output, settings=more)
    assert sum(done.result["examples"].values()) == 600
    folder = output / "pipeline_root" / "Cifar10ExampleGen" / "examples"
    assert len(list(folder.glob("*/*/data*"))) == 3 * 2
