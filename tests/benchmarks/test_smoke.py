"""Every benchmark runs to its end, on the smallest that it can be asked for."""

from __future__ import annotations

import json
import pathlib
import pickle
import re
import sys
import tarfile

import numpy as np
import pytest
from beam_engines import java
from processes import ran

from stagecraft.components.example_gen.archives import sample

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
GROUPS = ("engine", "planning", "pipelines", "robustness")
SCRIPTS = {
    path.stem: path
    for group in GROUPS
    for path in (BENCHMARKS / group).glob("*.py")
    if path.stem != "common"
}
"""Name of a benchmark: its file."""

SECONDS = 500

NUMBER = r"-?[\d,]+\.\d+%?"

RUNS = {
    "auto": (
        "--model even --devices 2 --rounds 1 --scale 0.02",
        rf"^even +2 +\d+ +(\dx\dx\d, +\d+, \d +\d+ +){{2}}{NUMBER} +{NUMBER}, {NUMBER}$",
    ),
    "checkpoints": (
        "--model cnn --batch-size 2 --rounds 1 --folder {folder}",
        rf"^median +({NUMBER} +){{5}}{NUMBER}$",
    ),
    "data_size": (
        "--examples 200 --sizes 1 --engine flink",
        rf"^flink: {NUMBER} ms per example of the largest size$",
    ),
    "drill": (
        "--scenario worker-killed",
        rf"^worker-killed +{NUMBER} s +{NUMBER} s .* passed$",
    ),
    "fit": (
        "--model cnn --rounds 1 --examples 16 --batch 8",
        rf"^cnn +replicas +[\d,]+ +{NUMBER} \(.*\) +\d+%  +\d+%$",
    ),
    "first_step": (
        "--blocks 1 --rounds 1 --topology 2x2 --engine trainer",
        rf"^ +1  trainer 2x2 +{NUMBER} \({NUMBER} to {NUMBER}\) +{NUMBER} \(",
    ),
    "input_data": (
        "{archives}/cifar-10-binary.tar.gz --rounds 1 --seconds 0.01 --warm-up 0 --batch 8",
        r"^stream +crop,flip,cutout +[\d,]+ \(",
    ),
    "overlap": (
        "--rounds 1 --forward-ms 1 --backward-ms 1 --stages 2 --virtual-stages 2 --microbatches 2",
        rf"^1f1b +2 +2 +2 +({NUMBER} +){{5,}}{NUMBER}$",
    ),
    "pipeline_overhead": (
        "{archives} --rounds 1 --steps 1 --min-accuracy 0",
        rf"^outside the Trainer, ours / stock: {NUMBER} \({NUMBER}\)$",
    ),
    "planner": (
        "--model cnn --stages 2 --rounds 1 --batch 2",
        rf"^cnn +2 +{NUMBER} +{NUMBER} +{NUMBER} \(",
    ),
    "planner_papers": (
        "",
        rf"^\d+ predictions: median error {NUMBER}, largest {NUMBER}, \d+ above ",
    ),
    "recipe": (
        "{archives}/cifar-10-binary.tar.gz --seeds 1 --epochs 0.2 --variant whitening "
        "--model airbench_2_2_2 --set train.batch_size=16",
        rf"^whitening +accuracy {NUMBER} +- recipe [+]?{NUMBER} .* +seconds / recipe {NUMBER} \(",
    ),
    "memory": (
        "--blocks 1 --width 64 --length 64 --batch 16 --microbatches 2",
        rf"^Keras's fit +2 +on +\d+ +\d+ +{NUMBER}$",
    ),
    "remat": (
        "--model cnn --batch 4 --microbatches 1",
        r"^ +less .* \d+ of \d+ arrays differ",
    ),
    "search": (
        "--model transformer_2_8_2 --length 4 --batch 8 --devices 4xT4-16GB --rounds 1",
        rf"^4xT4-16GB +{NUMBER} +{NUMBER} +\d+ +0 +\d+ +1 x \d+ x \d+ x 1, [\d.e-]+ s$",
    ),
    "shards": (
        "--mb 0.1 --shards 2 --rounds 1",
        rf"^seconds of a step, 2 shards / one device: {NUMBER} \(",
    ),
    "soak": ("--cycles 1", r"^nothing is left behind, and nothing grows$"),
    "stages": (
        "--model cnn --batch 8 --rounds 1 --jit off",
        rf"^off +M = 8 +{NUMBER} +{NUMBER} \(.*\) +{NUMBER} \(",
    ),
    "step_start": (
        "--rounds 1 --side tensorflow --side latest-blessed",
        rf"^latest-blessed +{NUMBER} \(.*\) +more than tensorflow: +{NUMBER}$",
    ),
    "taxi": (
        "--seeds 1 --steps 5",
        rf"^seconds, ours / template: {NUMBER} \(",
    ),
    "training_loop": (
        "--model cnn --rounds 1 --steps 1 --batch 8",
        rf"^cnn +ours +[\d,]+ +fit +[\d,]+ +ours / fit {NUMBER} \(",
    ),
    "workers": (
        "--model cnn --batch 8 --steps 1 --rounds 1",
        rf"^weak +2 +16 +{NUMBER} +{NUMBER} \(",
    ),
}
"""Name of a benchmark: its words, and a line that it prints in the end."""

FULL = (
    *("auto", "checkpoints", "data_size", "drill", "first_step", "fit", "input_data", "planner"),
    *("pipeline_overhead", "recipe", "remat", "shards", "soak", "stages", "step_start", "taxi"),
    *("training_loop", "workers"),
)
"""Ten seconds to two minutes each."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.full if name in FULL else pytest.mark.slow]


@pytest.fixture
def archives(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with the sample as both of CIFAR-10's archives, 160 and 40 pictures."""
    folder = tmp_path / "archives"
    unpacked = folder / "cifar-10-batches-bin"
    sample.write(unpacked, 160, 40)
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as tar:
        tar.add(unpacked, unpacked.name)
    python = folder / "cifar-10-batches-py"
    python.mkdir()
    for path in unpacked.glob("*_batch*.bin"):
        rows = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3073)
        batch = {b"labels": rows[:, 0].tolist(), b"data": rows[:, 1:]}
        (python / path.stem).write_bytes(pickle.dumps(batch))
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(python, python.name)
    return folder


def test_none_is_left_out() -> None:
    assert sorted(RUNS) == sorted(SCRIPTS)


def test_every_group_imports_the_common_file() -> None:
    groups = {path.parent for path in SCRIPTS.values()}
    assert {(group / "common.py").resolve() for group in groups} == {BENCHMARKS / "common.py"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in RUNS])
def test_it_runs_to_its_end(name: str, archives: pathlib.Path, tmp_path: pathlib.Path) -> None:
    if name == "data_size":
        java.jars()
    words, last = RUNS[name]
    done = ran(
        sys.executable,
        SCRIPTS[name],
        *(word.format(archives=archives, folder=tmp_path) for word in words.split()),
        timeout=SECONDS,
        cwd=tmp_path,
        variables={"TMPDIR": str(tmp_path)},
    )
    assert re.search(last, done.stdout, re.MULTILINE), done.stdout
    (figures,) = re.findall(r"^figures: (.*)$", done.stdout, re.MULTILINE)
    for figure in json.loads(figures).values():
        assert isinstance(figure["value"], float)
        assert figure["better"] in ("higher", "lower")
    assert json.loads(figures)
