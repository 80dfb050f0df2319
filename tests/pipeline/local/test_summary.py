"""What the table says of a training."""

import pytest
from tfx.types import standard_artifacts

from stagecraft.components.example_gen import driver, spans
from stagecraft.components.pusher.already import ALREADY
from stagecraft.components.report import collect
from stagecraft.pipeline.local import nodes
from stagecraft.pipeline.local.summary import figure


@pytest.mark.parametrize(
    ("resumed_from", "said"),
    [
        (0, "1,530 images/s, val accuracy 0.250"),
        (8, "1,530 images/s, val accuracy 0.250"),
        (12, "an earlier run trained all 12 steps, val accuracy 0.250"),
    ],
)
def test_a_training_that_took_no_step_says_so(resumed_from, said):
    """Its rate is the earlier run's, perhaps on another topology."""
    model = standard_artifacts.Model()
    model.set_int_custom_property("steps", 12)
    model.set_int_custom_property("resumed_from", resumed_from)
    model.set_float_custom_property("images_per_second", 1529.6)
    model.set_float_custom_property("val_accuracy", 0.25)
    assert figure("Trainer", {"model": [model]}) == said


def test_a_training_of_another_task():
    model = standard_artifacts.Model()
    for name, word in (("monitor", "mse"), ("noun", "examples")):
        model.set_string_custom_property(name, word)
    model.set_int_custom_property("steps", 12)
    for name, value in (("images_per_second", 1529.6), ("val_mse", 12345.6), ("val_mae", 1.0)):
        model.set_float_custom_property(name, value)
    assert figure("Trainer", {"model": [model]}) == "1,530 examples/s, val mse 1.23e+04"


def test_a_model_that_was_pushed_before():
    pushed = standard_artifacts.PushedModel()
    assert figure("Pusher", {"pushed_model": [pushed]}) == "not pushed"
    pushed.set_int_custom_property("pushed", 1)
    pushed.set_string_custom_property("pushed_destination", "/serving/17")
    assert figure("Pusher", {"pushed_model": [pushed]}) == "pushed"
    pushed.set_int_custom_property(ALREADY, 1)
    assert "17" in figure("Pusher", {"pushed_model": [pushed]})


@pytest.mark.parametrize(
    ("has_blessed", "said"), [(False, "no blessed model yet"), (True, "no other blessed model")]
)
def test_no_baseline(has_blessed, said):
    assert figure("Baseline", {"model": []}, has_blessed=has_blessed) == said


def test_a_span_of_the_window_that_has_a_newer_version(tmp_path):
    source = f"{tmp_path}/{{SPAN}}/v{{VERSION}}"
    examples = []
    for span in (1, 2):
        (tmp_path / f"{span}" / "v1").mkdir(parents=True)
        artifact = standard_artifacts.Examples()
        driver.describe(artifact.mlmd_artifact, spans.find([source], f"{span}"), "series")
        examples.append(artifact)
    before = figure(nodes.WINDOW, {"examples": examples})
    record = {
        "spans": spans.told_of([spans.find([source], f"{each}").properties() for each in (1, 2)])
    }
    trained = collect.Training(record=record, curve=[], timeline=None, parameters=None)
    settings, newest = {"data": {"window": 2}}, {"examples": examples[-1]}
    assert collect._window(settings, trained, newest) == before
    (tmp_path / "1" / "v2").mkdir()
    after = figure(nodes.WINDOW, {"examples": examples})
    assert after.startswith(before) and after != before
    assert collect._window(settings, trained, newest) == after
