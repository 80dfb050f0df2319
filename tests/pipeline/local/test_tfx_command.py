"""The stock ``tfx`` command, from another folder, on ``local_runner.py``."""

import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.full  # test_verbs.py has a shorter one

ROOT = pathlib.Path(__file__).resolve().parents[3]

TINY = (
    "data.sample_train=400 data.sample_test=100 data.shards=2 "
    "train.steps=6 train.batch_size=32 evaluate.min_accuracy=0 evaluate.better_than_constant=false"
)


def test_create_list_and_run(tmp_path):
    environment = {
        **os.environ,
        "LOCAL_HOME": str(tmp_path / "home"),
        "STAGECRAFT_SET": TINY,
        "STAGECRAFT_OUTPUT": str(tmp_path / "out"),
    }

    def tfx(*words):
        ran = subprocess.run(
            [pathlib.Path(sys.executable).with_name("tfx"), *words, "--engine=local"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout[-5000:]
        return ran.stdout

    created = tfx("pipeline", "create", f"--pipeline-path={ROOT / 'local_runner.py'}")
    assert 'Pipeline "quickstart" created successfully.' in created
    assert "quickstart" in tfx("pipeline", "list").splitlines()
    assert not (tmp_path / "out" / "serving").exists()

    tfx("run", "create", "--pipeline-name=quickstart")
    [version] = (tmp_path / "out" / "serving").iterdir()
    assert (version / "saved_model.pb").exists()
