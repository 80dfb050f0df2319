"""Commands refuse wrong settings before they import TensorFlow or write anything.

Each command runs in a process of its own, which prints at its end what it has imported.
"""

import errno
import json
import os
import shutil
import sys

import pytest
from processes import ran

from stagecraft.pipeline.cli.project import writing
from stagecraft.pipeline.local import layout, nodes, supervisor

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


@pytest.mark.parametrize(
    ("words", "tf_config", "said"),
    [
        (("plan", *UNKNOWN), "", "'steps'"),
        (("plan", *NO_MODULE), "", ""),
        (("plan", "--devices", "4xFoo"), "", "4xA100-40GB"),
        (("parity", *UNKNOWN), "", "'steps'"),
        (("parity", *NO_FUNCTION), "", "'nett'"),
        (("parity", "--data", "empty"), "", "data_batch_1.bin"),
        (("run", *UNKNOWN), "", "'steps'"),
        (("run", *NO_MODULE), "", ""),
        (("run", *NO_FUNCTION), "", "'nett'"),
        (("run", "--data", "/etc"), "", "/etc"),
        (("run", "--data", "notes.txt"), "", "not a .tar.gz"),
        (("run", "--data", "nowhere"), "", "nowhere"),
        (("run", "--set", "data.schema_file=nowhere.pbtxt"), "", "nowhere.pbtxt"),
        (("run", "--set", "data.schema_file=empty"), "", "data.schema_file"),
        (("run", *TWO_WORKERS), "garbage", "'garbage'"),
        (("run", *TWO_WORKERS), "[1]", "object"),
        (("run", *TWO_WORKERS), "[" * 100_000, ""),
        (
            ("run", *TWO_WORKERS),
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}',
            "parallel.workers: 1",
        ),
        (("run", *TWO_WORKERS, "--set", "parallel.launcher=in_process"), "", "unset"),
    ],
)
def test_refused_before_anything_heavy_is_imported(tmp_path, words, tf_config, said):
    folder = tmp_path / "here"
    (folder / "empty").mkdir(parents=True)
    (folder / "notes.txt").write_text("no data")
    (folder / "mine.py").write_text("import keras\n\ndef net(): ...\n")
    before = sorted(folder.rglob("*"))
    command = (sys.executable, "-c", PROGRAM, *words, "--json")
    done = ran(*command, code=1, cwd=folder, variables={"TF_CONFIG": tf_config})
    error = json.loads(done.stdout)["error"]
    assert done.stderr == f"Error: {error}\nimported []\n"
    if words[1:] == NO_MODULE:  # the message names the folders of sys.path
        assert "no_such_module" in error
    elif len(tf_config) > 1000:  # Python words the reason
        assert "TF_CONFIG: not JSON" in error
    else:
        assert said in error
    assert sorted(folder.rglob("*")) == before


def test_tf_config_is_no_matter_where_nothing_trains(stagecraft, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "garbage")
    end = {"kind": "end", "status": "ok", "cause": None, "report": {}}
    assert stagecraft("run", *TWO_WORKERS, "--to", "Transform", fake=[end]).code == 0
    assert stagecraft("run", fake=[end]).code == 0  # one device
    local = ("--set", "parallel.launcher=local")
    assert stagecraft("run", *TWO_WORKERS, *local, fake=[end]).code == 0
    ran = stagecraft("run", *TWO_WORKERS, fake=[end])
    assert ran.code == 1 and "TF_CONFIG" in ran.stderr


@pytest.mark.parametrize("output", ["nowhere/schema.pbtxt", "file/schema.pbtxt", "/proc/x.pbtxt"])
def test_schema_asks_for_its_file_before_it_works(stagecraft, tmp_path, output):
    (tmp_path / "file").touch()
    done = stagecraft("schema", "--output", output, fake=["kill"])
    assert (done.code, done.stdout) == (1, "")
    assert output in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_schema_says_that_its_file_cannot_be_written_in_the_end(stagecraft, tmp_path, monkeypatch):
    def full(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    monkeypatch.setattr(supervisor, "supervise", inferred)
    writing.write(tmp_path / "project", "empty")
    monkeypatch.chdir(tmp_path / "project")
    done = stagecraft("schema", "--config", "settings.yaml")
    assert (done.code, done.stdout) == (1, "")


def test_ctrl_c_ends_schema_as_other_commands(stagecraft, tmp_path, monkeypatch):
    monkeypatch.setattr(
        supervisor, "supervise", lambda *given: supervisor.Outcome("interrupted", signal=2)
    )
    writing.write(tmp_path / "project", "empty")
    monkeypatch.chdir(tmp_path / "project")
    assert stagecraft("schema", "--config", "settings.yaml").code == 130


def inferred(spec, log, on_event):
    """A run that has written a schema."""
    found = layout.pipeline_root(spec.output) / nodes.SCHEMA_GEN / "schema" / "3" / "schema.pbtxt"
    found.parent.mkdir(parents=True)
    found.touch()
    return supervisor.Outcome("ok")
