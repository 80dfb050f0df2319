"""``stagecraft compare``: which runs, and what differs between them."""

import json

import pytest
from past_runs import Output, State


@pytest.fixture
def output(tmp_path):
    """Two runs in ``runs/quickstart``: the second one trains longer, and is better."""
    output = Output(tmp_path / "runs" / "quickstart")
    output.whole("2026-01-02T03:04:05.6", accuracy=0.5, blessed=0)
    output.whole("2026-01-03T03:04:05.6", "train.epochs=30", "train.augment=none", accuracy=0.75)
    return output


def lines(text):
    return [line.split() for line in text.splitlines()]


def test_a_run_and_the_one_before_it(stagecraft, output):
    ran = stagecraft("compare", "runs/quickstart")
    assert ran.code == 0
    found = lines(ran.stdout)
    assert ["run", "2026-01-02T03:04:05.6", "2026-01-03T03:04:05.6"] in found
    assert ["blessed", "no", "yes"] in found
    assert ["pushed", "no", "17"] in found
    assert ["train.epochs", "10.0", "30.0"] in found
    assert ["train.augment", '["crop",', '"flip"]', "[]"] in found
    assert ["accuracy", "0.5000", "0.7500", "+0.2500"] in found
    assert ["steps", "703", "703", "+0"] in found
    assert "trained steps 1 to 703 steps 1 to 703" in map(" ".join, found)
    assert next(line for line in found if line[:1] == ["Trainer"])[-1] == "c0de"
    assert "no report" not in ran.stdout


def test_a_and_b_may_be_given_in_any_order(stagecraft, output):
    ran = stagecraft("compare", "runs/quickstart", "2026-01-02", "--json")
    found = ran.last_line
    assert found["a"]["run_id"] == "2026-01-03T03:04:05.6"
    assert found["b"]["run_id"] == "2026-01-02T03:04:05.6"
    assert found["settings"] == {
        "train.augment": {"a": [], "b": ["crop", "flip"]},
        "train.epochs": {"a": 30.0, "b": 10.0},
    }
    assert found["differences"]["accuracy"] == -0.25


def test_the_same_settings(stagecraft, output):
    output.whole("2026-01-04T03:04:05.6", "train.epochs=30", "train.augment=none")
    ran = stagecraft("compare", "runs/quickstart")
    assert "No setting differs." in ran.stdout


def test_a_training_of_an_earlier_run_is_said_to_be_one(stagecraft, output):
    run = output.begin("2026-01-04T03:04:05.6")
    model = output.artifact("Model", steps=703, resumed_from=703)
    output.step(run, "Trainer", outputs=[model])
    found = lines(stagecraft("compare", "runs/quickstart").stdout)
    (trained,) = (line for line in found if line[:2] == ["trained", "steps"])
    assert trained[2:6] == ["1", "to", "703", "703"] and trained[-2:] == ["earlier", "run"]


def test_a_run_that_failed_and_other_code(stagecraft, output):
    cause = "the loss is NaN"
    run = output.begin("2026-01-05T03:04:05.6")
    output.step(
        run,
        "Trainer",
        State.FAILED,
        code_fingerprint="beef",
        train_epochs=5.0,
        __execution_result__=json.dumps({"resultMessage": cause}),
    )
    ran = stagecraft("compare", "2026-01-03", "2026-01-05")
    found = lines(ran.stdout)
    assert ["state", "done", "failed:", "Trainer"] in found
    assert f"B failed: {cause}" in ran.stdout.splitlines()
    assert ["train.epochs", "30.0", "5.0"] in found
    assert ["accuracy", "0.7500"] in found
    trainer = next(line for line in found if line[:1] == ["Trainer"])
    assert trainer[-4:] == ["failed", "c0de", "->", "beef"]
    assert "\nB has " in ran.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["2026-01-02"],
        ["2026"],
        ["2026-01-02", "runs/quickstart@2026-01-02"],
        ["runs/nowhere", "2026-01-02"],
    ],
)
def test_errors(refused, output, arguments):
    assert "runs" in refused("compare", *arguments)


def test_an_empty_name(stagecraft):
    assert "is empty" in stagecraft("compare", "").stderr
