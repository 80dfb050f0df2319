"""``train.initial_weights`` on the command line: refused early, and what compile says of files."""

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
def model(tmp_path, monkeypatch):
    """Settings of a model that has weights; in the current folder."""
    name = f"cli_weights_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODEL)
    (tmp_path / "scale.txt").write_text("1")
    monkeypatch.syspath_prepend(str(tmp_path))
    return ("--set", f"train.model={name}:build")


def _saved(model, classes):
    module, _, function = model[1].partition("=")[2].partition(":")
    built = getattr(__import__(module), function)((32, 32, 3), classes)
    built.save_weights("w.weights.h5")


@pytest.mark.parametrize("weights", ["gone.keras", "s3://bucket/m.keras"])
@pytest.mark.parametrize("command", ["run", "parity", "plan", "compile"])
def test_a_missing_file_and_an_address(stagecraft, tmp_path, command, weights):
    ran = stagecraft(command, "--set", f"train.initial_weights={weights}")
    assert ran.code == 1
    assert not list(tmp_path.iterdir()), "the command wrote files"


@pytest.mark.parametrize(
    ("skip", "said"),
    [
        ("", "net/head/bias is (7,)"),
        ("net/head", "train.initial_weights_skip leaves"),
        ("*/bias", "net/head/kernel is (3072, 7)"),
    ],
)
def test_plan_lists_mismatches(stagecraft, model, skip, said):
    _saved(model, classes=7)
    skips = ("--set", f"train.initial_weights_skip={skip}") if skip else ()
    ran = stagecraft("plan", *model, "--set", "train.initial_weights=w.weights.h5", *skips)
    assert ran.code == 1 and said in ran.stderr


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
    starts = ("initial weights ", "the model reads ")
    weights, reads = (line for line in ran.stdout.splitlines() if line.startswith(starts))
    assert "w.weights.h5" in weights and f" {tmp_path / 'scale.txt'}: " in reads
    (compiled,) = tmp_path.glob("*.yaml")
    assert "initial_weights_fingerprint" in compiled.read_text()
