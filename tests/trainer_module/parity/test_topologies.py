"""Real topologies against one device: pairs of model, optimizer and topology.

``make parity`` runs the full product. Here replicas in two processes, and a grid of replicas and
stages, meet batch statistics and clipping. The engines' own tests have the other ways to divide a
training, activations computed again, and 16 bits.
"""

import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from model_arguments import classes

from stagecraft.trainer_module.parity import cases, check
from stagecraft.trainer_module.parity.check import Check
from stagecraft.trainer_module.parity.report import Row
from stagecraft.trainer_module.parity.task import Task
from stagecraft.trainer_module.processes import exit_codes
from stagecraft.trainer_module.settings import TrainingSettings

STEPS, BATCH = 4, 16

SELECTION = {
    ("cnn", "adamw"): ("workers-2",),
    ("airbench_4_6_8", "muon"): ("grid-2x2",),
}
"""The rest is for ``make parity``, and the engines' own tests."""

RECIPES: dict[str, dict[str, Any]] = {
    "airbench_4_6_8": {
        "optimizer_args": {"momentum": 0.6, "iterations": 3, "normalize_weights": True},
        "schedule": "triangular",
        "label_smoothing": 0.2,
        "learning_rate_multipliers": {"norm/beta": 64},
        "lookahead": 2,
        "freeze_after": {"whitening/bias": 0.5},
    },
    "cnn": {"freeze_after": {"block[12]_conv": 0.5}},
}
"""Other settings of the training of a model."""

PAIRS = [(*training, name) for training, names in SELECTION.items() for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What the processes write, in a folder a training."""
    return tmp_path_factory.mktemp("parity")


@pytest.fixture(scope="module")
def rows(folder: pathlib.Path) -> dict[tuple[str, str, str], Row]:
    """(model, optimizer, topology) -> its row; runs two at a time."""
    draw = np.random.RandomState(0)
    labels = draw.randint(0, 10, 4 * BATCH)
    images = draw.randn(len(labels), 32, 32, 3) + np.eye(32)[labels][:, :, None, None]
    data = folder / "data.npz"
    np.savez(data, inputs=images.astype(np.float32), targets=labels.astype(np.int64))

    def run(training: tuple[str, str]) -> list[Row]:
        model, optimizer = training
        settings = TrainingSettings.model_validate(
            {"train": {"model": model, "optimizer": optimizer, **RECIPES.get(model, {})}}
        )
        names = ",".join(SELECTION[training])
        chosen = cases.select(names, settings, steps=STEPS, batch_size=BATCH)
        where = folder / f"{model}-{optimizer}"
        return list(Check(data, classes(), where, steps=STEPS, timeout_seconds=300.0).rows(chosen))

    with ThreadPoolExecutor(2) as pool:
        found = zip(SELECTION, pool.map(run, SELECTION), strict=True)
        return {(*training, row.topology): row for training, rows in found for row in rows}


@pytest.mark.full
@pytest.mark.parametrize(("model", "optimizer", "topology"), PAIRS)
def test_computes_what_one_device_computes(rows, model, optimizer, topology):
    row = rows[model, optimizer, topology]
    assert row.equal, row.reason


@pytest.mark.full
def test_the_tolerance_leaves_room_and_no_more(rows):
    """Rounding is seen, and far below what is allowed for it: 1/10 at most."""
    ratios = {
        key: finding.ratio
        for key, row in rows.items()
        for finding in row.findings
        if finding.criterion == "gradients"
    }
    assert 0 < max(ratios.values()) < 0.1, ratios


@pytest.mark.slow
def test_a_process_ends_with_its_parent(tmp_path):
    (case,) = cases.select("stages-2", TrainingSettings(), steps=STEPS, batch_size=BATCH)
    out, data = (str(tmp_path / name) for name in ("out.npz", "data.npz"))
    zeros = np.zeros(BATCH, np.int64)
    np.savez(data, inputs=np.zeros((BATCH, 32, 32, 3), np.float32), targets=zeros)
    task = Task(
        settings=case.settings, arguments=classes(), data=data, steps=STEPS, out=out, reference=None
    )
    reader, writer = os.pipe()
    ended = subprocess.run(  # a pipe that nobody holds open any more
        [sys.executable, *check._WORKER, str(writer)],
        input=f"{task.line()}\n".encode(),
        pass_fds=[writer],
    )
    os.close(reader)
    os.close(writer)
    assert ended.returncode == exit_codes.PREEMPTED
