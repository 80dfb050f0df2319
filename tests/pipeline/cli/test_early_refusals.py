"""What a look can refuse is refused before TensorFlow is imported, and before anything is written.

Each command is a process of its own, whose exit tells what it had imported.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

HEAVY = ("tensorflow", "tfx", "keras", "apache_beam", "ml_metadata")

PROGRAM = f"""
import atexit, sys
sys.path[:] = [entry for entry in sys.path if entry]
found = lambda: [name for name in {HEAVY} if name in sys.modules]
atexit.register(lambda: print("imported", found(), file=sys.stderr))
from stagecraft.pipeline.cli.main import main
main()
"""

TWO_WORKERS = ("--set", "parallel.strategy=multi_worker_mirrored", "--set", "parallel.workers=2")
UNKNOWN = ("--set", "train.stps=3")
NO_MODULE = ("--set", "train.model=no_such_module:net")
NO_FUNCTION = ("--set", "train.model=mine:nett")
SAID = "--set train.stps=3: train: unknown setting 'stps'; did you mean 'steps'?"


@pytest.mark.parametrize(
    ("words", "tf_config", "said"),
    [
        (("plan", *UNKNOWN), "", (SAID,)),
        (("plan", *NO_MODULE), "", ("train.model", "no module 'no_such_module'")),
        (("plan", "--devices", "4xFoo"), "", ("--devices: '4xFoo'", "A100-40GB")),
        (("parity", *UNKNOWN), "", (SAID,)),
        (("parity", *NO_FUNCTION), "", ("train.model", "module mine", "has no 'nett'")),
        (("parity", "--data", "empty"), "", ("empty: has no CIFAR batch",)),
        (("run", *UNKNOWN), "", (SAID,)),
        (("run", *NO_MODULE), "", ("train.model", "no module 'no_such_module'", "PYTHONPATH")),
        (("run", *NO_FUNCTION), "", ("train.model", "module mine", "has no 'nett'")),
        (("run", "--data", "/etc"), "", ("/etc: has no CIFAR batch",)),
        (("run", "--data", "notes.txt"), "", ("notes.txt: is damaged or not a .tar.gz",)),
        (("run", "--data", "nowhere"), "", ("nowhere: no such file or folder",)),
        (
            ("run", "--set", "data.schema_file=nowhere.pbtxt"),
            "",
            ("data.schema_file: nowhere.pbtxt: No such file",),
        ),
        (("run", "--set", "data.schema_file=empty"), "", ("empty: Is a directory",)),
        (("run", *TWO_WORKERS), "garbage", ("TF_CONFIG: not JSON", "'garbage'")),
        (("run", *TWO_WORKERS), "[1]", ("TF_CONFIG: expected an object",)),
        (("run", *TWO_WORKERS), "[" * 100_000, ("TF_CONFIG: not JSON",)),
        (
            ("run", *TWO_WORKERS),
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}',
            ("parallel.workers: 2, but TF_CONFIG has 1 worker",),
        ),
        (
            ("run", *TWO_WORKERS, "--set", "parallel.launcher=in_process"),
            "",
            ("TF_CONFIG: unset, but parallel.workers: 2",),
        ),
    ],
)
def test_refused_before_anything_heavy_is_imported(
    tmp_path: pathlib.Path, words: tuple[str, ...], tf_config: str, said: tuple[str, ...]
) -> None:
    folder = tmp_path / "here"
    (folder / "empty").mkdir(parents=True)
    (folder / "notes.txt").write_text("no data")
    (folder / "mine.py").write_text("import keras\n\ndef net(): ...\n")
    before = sorted(folder.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words, "--json"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "TF_CONFIG": tf_config},
        check=False,
    )
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stdout)["error"]
    for word in said:
        assert word in error
    assert f"Error: {error}\n" in done.stderr
    assert done.stderr.endswith("imported []\n")
    assert sorted(folder.rglob("*")) == before


def test_tf_config_is_no_matter_where_nothing_trains(
    stagecraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", "garbage")
    end = {"kind": "end", "status": "ok", "cause": None, "report": {}}
    assert stagecraft("run", *TWO_WORKERS, "--to", "Transform", fake=[end]).code == 0
    assert stagecraft("run", fake=[end]).code == 0  # one device
    local = ("--set", "parallel.launcher=local")
    assert stagecraft("run", *TWO_WORKERS, *local, fake=[end]).code == 0
    assert stagecraft("run", *TWO_WORKERS, fake=[end]).code == 1
