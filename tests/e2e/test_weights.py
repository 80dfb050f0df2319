"""Weights out of files: a run trains from the new ones when replaced; else it is cached."""

import json
import shutil

import numpy as np
import pytest
from support import run

from stagecraft.trainer_module.models.initial_weights import loading

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]  # six runs

MODEL = """
import pathlib
import keras
import numpy as np

def build(input_shape, num_classes):
    weights = np.load(pathlib.Path(__file__).parent / "weights.npz")
    start = keras.initializers.Constant(float(weights["start"]))
    frozen = keras.layers.Dense(4, kernel_initializer=start, trainable=False, name="frozen")
    layers = [keras.layers.GlobalAveragePooling2D(), frozen, keras.layers.Dense(num_classes)]
    return keras.Sequential([keras.Input(input_shape), *layers])
"""

FROZEN = "sequential/frozen/kernel"


def _newest(output, key):
    folders = (output / "pipeline_root" / "Trainer" / key).iterdir()
    return max(folders, key=lambda folder: int(folder.name))


def test_replaced_weights_are_trained_from(tmp_path):
    code, output = tmp_path / "code", tmp_path / "out"
    code.mkdir()
    (code / "weighty.py").write_text(MODEL)
    words = ["--to", "Trainer", "--set", "train.model=weighty:build"]

    def executed():
        done = run(output, *words, path=code, cwd=tmp_path)
        return "Trainer" in done.executed()

    def frozen():
        record = json.loads((_newest(output, "model_run") / "record.json").read_text())
        assert record["resumed_from"] == 0, "the finished training with the old file was found"
        weights = loading.of_saved_model(_newest(output, "model") / "Format-Serving")
        return set(weights[FROZEN].flat)

    def write(start):
        np.savez(code / "weights.npz", start=start)

    write(0.25)
    assert executed()
    assert frozen() == {0.25}
    assert not executed()
    first = shutil.copytree(_newest(output, "model") / "Format-Serving", tmp_path / "first")
    write(0.75)
    assert executed()
    assert frozen() == {0.75}
    other = _newest(output, "model") / "Format-Serving"

    # The same through the setting: an exported model, and then another one in its place.
    words += ["--set", "train.initial_weights=first"]
    assert executed()
    assert frozen() == {0.25}
    assert not executed()
    shutil.rmtree(first)
    shutil.copytree(other, first)
    assert executed()
    assert frozen() == {0.75}
