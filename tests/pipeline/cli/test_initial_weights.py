"""``train.initial_weights`` on the command line: refused early, and what compile says of files."""

from __future__ import annotations

import pathlib

import pytest

MODEL = """
import pathlib
import keras

def build(input_shape, num_classes):
    pathlib.Path(__file__).with_name("scale.txt").read_text()
    head = keras.layers.Dense(num_classes, name="head")
    return keras.Sequential([keras.Input(input_shape), keras.layers.Flatten(), head], name="net")
"""


@pytest.fixture
def model(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Settings of a model that has weights; in the current folder."""
    name = f"cli_weights_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODEL)
    (tmp_path / "scale.txt").write_text("1")
    monkeypatch.syspath_prepend(str(tmp_path))
    return ("--set", f"train.model={name}:build")


def _saved(model: tuple[str, ...], classes: int) -> None:
    module, _, function = model[1].partition("=")[2].partition(":")
    built = getattr(__import__(module), function)((32, 32, 3), classes)
    built.save_weights("w.weights.h5")


@pytest.mark.parametrize("command", ["run", "parity", "plan", "compile"])
def test_a_file_that_is_not_there(stagecraft, tmp_path, command):
    ran = stagecraft(command, "--set", "train.initial_weights=gone.keras")
    assert ran.code == 1
    text = " ".join(ran.stderr.split())
    assert text.startswith("Error: train.initial_weights: gone.keras: no such file or folder")
    assert not list(tmp_path.iterdir()), "something was begun"


@pytest.mark.parametrize("command", ["run", "plan", "compile"])
def test_an_address_is_refused(stagecraft, command):
    ran = stagecraft(command, "--set", "train.initial_weights=s3://bucket/m.keras")
    assert ran.code == 1
    assert "train.initial_weights: s3://bucket/m.keras is an address" in " ".join(
        ran.stderr.split()
    )


def test_plan_lists_what_does_not_match(stagecraft, model):
    _saved(model, classes=7)
    named = (*model, "--set", "train.initial_weights=w.weights.h5")
    ran = stagecraft("plan", *named)
    text = " ".join(ran.stderr.split())
    assert ran.code == 1
    assert "2 of another shape (net/head/bias (7,), in the model (10,)" in text
    assert "train.initial_weights_skip" in text
    ran = stagecraft("plan", *named, "--set", "train.initial_weights_skip=net/head")
    assert ran.code == 1
    assert "leaves nothing to load" in ran.stderr
    ran = stagecraft("plan", *named, "--set", "train.initial_weights_skip=*/bias")
    assert ran.code == 1
    assert "1 of another shape (net/head/kernel" in " ".join(ran.stderr.split())


def test_plan_says_how_many_were_loaded(stagecraft, model):
    _saved(model, classes=10)
    named = (*model, "--set", "train.initial_weights=w.weights.h5")
    ran = stagecraft("plan", *named, "--set", "train.initial_weights_skip=*/bias")
    assert ran.code == 0, ran.stderr
    note = "note: 1 of 2 variables start with the values of w.weights.h5"
    assert note in " ".join(ran.stdout.split())


def test_compile_names_the_files_that_the_steps_need(stagecraft, model, tmp_path):
    _saved(model, classes=10)
    ran = stagecraft("compile", *model, "--set", "train.initial_weights=w.weights.h5")
    assert ran.code == 0, ran.stderr
    text = " ".join(ran.stdout.split())
    assert "initial weights w.weights.h5: the image or a volume needs it" in text
    assert f"the model reads {tmp_path / 'scale.txt'}: the image or a volume" in text
    (compiled,) = tmp_path.glob("*.yaml")
    assert "initial_weights_fingerprint" in compiled.read_text()
