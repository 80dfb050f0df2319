"""Weights out of files: a run trains from the new ones when replaced; else it is cached."""

from __future__ import annotations

import json
import pathlib
import shutil

import numpy as np
import pytest
from support import run

from stagecraft.trainer_module.initial_weights import stored

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


def _resumed_from(output: pathlib.Path) -> int:
    folders = (output / "pipeline_root" / "Trainer" / "model_run").iterdir()
    newest = max(folders, key=lambda folder: int(folder.name))
    return int(json.loads((newest / "record.json").read_text())["resumed_from"])


def test_replaced_weights_are_trained_from(tmp_path: pathlib.Path) -> None:
    code, output = tmp_path / "code", tmp_path / "out"
    code.mkdir()
    (code / "weighty.py").write_text(MODEL)
    pushed: list[pathlib.Path] = []

    def trained(*words: object) -> bool:
        model = ("--set", "train.model=weighty:build")
        done = run(output, *model, *words, path=code, cwd=tmp_path)
        assert done.code == 0, done.stderr
        if done.result["pushed"]:
            pushed.append(pathlib.Path(done.result["pushed"]))
        return "Trainer" in done.executed()

    def write(start: float) -> None:
        np.savez(code / "weights.npz", start=start)

    write(0.25)
    assert trained()
    assert set(stored.of_saved_model(pushed[-1])[FROZEN].flat) == {0.25}
    assert not trained()
    write(0.75)
    assert trained()
    assert _resumed_from(output) == 0, "the finished training with the old file was found"
    assert set(stored.of_saved_model(pushed[-1])[FROZEN].flat) == {0.75}

    # The same through the setting: a pushed model, and then another one in its place.
    shutil.copytree(pushed[0], tmp_path / "first")
    words = ("--set", "train.initial_weights=first")
    assert trained(*words)
    assert set(stored.of_saved_model(pushed[-1])[FROZEN].flat) == {0.25}
    assert not trained(*words)
    shutil.rmtree(tmp_path / "first")
    shutil.copytree(pushed[1], tmp_path / "first")
    assert trained(*words)
    assert _resumed_from(output) == 0
    assert set(stored.of_saved_model(pushed[-1])[FROZEN].flat) == {0.75}
