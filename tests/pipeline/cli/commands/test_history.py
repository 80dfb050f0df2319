"""``stagecraft history``: which runs are listed, in which words."""

import re

import pytest
from past_runs import Output, State


@pytest.fixture
def output(tmp_path):
    """A run that is whole, then one that failed, in ``runs/quickstart``."""
    output = Output(tmp_path / "runs" / "quickstart")
    output.whole("2026-01-02T03:04:05.6", "train.epochs=3", "data.shards=2", accuracy=0.75)
    run = output.begin("2026-01-03T03:04:05.6")
    output.step(run, "Cifar10ExampleGen", State.FAILED, dataset="cifar10", source="/a/b.tar.gz")
    return output


def test_the_newest_first(stagecraft, output):
    ran = stagecraft("history")
    assert ran.code == 0
    # How long it took to write them down.
    header, failed, whole = re.sub(r"\b\d+ s\b", "0 s", ran.stdout).splitlines()
    assert header.split() == [
        "RUN", "OUTPUT", "STATE", "DATA", "TOPOLOGY", "TIME", "ACCURACY", "BLESSED", "PUSHED",
        "SETTINGS",
    ]  # fmt: skip
    assert whole.split() == [
        "2026-01-02T03:04:05", "runs/quickstart", "done", "sample", "abababab", "6,000",
        "2", "×", "2", "grid", "0", "s", "75.0%", "yes", "17",
        "data.shards=2", "train.epochs=3.0",
    ]  # fmt: skip
    assert failed.split() == [
        "2026-01-03T03:04:05", "runs/quickstart", "failed:", "Cifar10ExampleGen", "b.tar.gz",
        "0", "s",
    ]  # fmt: skip


def test_a_topology_that_never_came_to_train(stagecraft, output):
    run = output.begin("2026-01-04T03:04:05.6")
    grid = {"strategy": "grid", "workers": 2, "replicas": 1, "stages": 3}
    output.step(run, "Trainer", State.FAILED, **{f"parallel_{name}": grid[name] for name in grid})
    assert "2 × 3 grid" in stagecraft("history").stdout.splitlines()[1]


def test_as_json(stagecraft, output):
    failed, whole = stagecraft("history", "runs/quickstart", "--json").last_line["runs"]
    assert (failed["state"], failed["component"]) == ("failed", "Cifar10ExampleGen")
    assert whole["run_id"] == "2026-01-02T03:04:05.6"
    assert whole["settings"] == {"data.shards": 2, "train.epochs": 3.0}
    assert whole["metrics"]["accuracy"] == 0.75
    assert whole["blessed"] is True
    assert whole["components"]["Trainer"]["state"] == "done"


def test_no_more_than_the_limit(stagecraft, output):
    ran = stagecraft("history", "--limit", "1")
    assert len(ran.stdout.splitlines()) == 2
    assert "The newest 1 of 2; --limit shows more." in ran.stderr
    assert stagecraft("history", "--limit", "0").code == 2


def test_several_folders(stagecraft, output, tmp_path):
    Output(tmp_path / "other").begin("one")
    ran = stagecraft("history", "runs", "other", "--json")
    assert {run["output"] for run in ran.last_line["runs"]} == {"runs/quickstart", "other"}


def test_what_cannot_be_read_is_told(stagecraft, output, tmp_path):
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "metadata.db").write_bytes(b"no database" * 100)
    ran = stagecraft("history")
    assert len(ran.stdout.splitlines()) == 3
    assert "Left out: runs/broken/metadata.db: " in ran.stderr


def test_no_runs(refused, tmp_path):
    assert "contains" in refused("history")
    assert "contains" in refused("history", "none")
    (tmp_path / "file").write_text("")
    assert "contains" in refused("history", "file")
    Output(tmp_path / "runs" / "empty")
    assert "yet" in refused("history")
