"""The stock ``tfx`` command, from another folder, on ``local_runner.py``."""

import pathlib
import sys

import pytest
from processes import ran
from support import TINY

pytestmark = pytest.mark.full  # test_verbs.py has a shorter one

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_create_list_and_run(tmp_path):
    variables = {
        "LOCAL_HOME": str(tmp_path / "home"),
        "STAGECRAFT_SET": " ".join(TINY),
        "STAGECRAFT_OUTPUT": str(tmp_path / "out"),
    }

    def tfx(*words):
        program = pathlib.Path(sys.executable).with_name("tfx")
        return ran(program, *words, "--engine=local", cwd=tmp_path, variables=variables).stdout

    created = tfx("pipeline", "create", f"--pipeline-path={ROOT / 'local_runner.py'}")
    assert 'Pipeline "quickstart" created successfully.' in created
    assert "quickstart" in tfx("pipeline", "list").splitlines()
    assert not (tmp_path / "out" / "serving").exists()

    tfx("run", "create", "--pipeline-name=quickstart")
    [version] = (tmp_path / "out" / "serving").iterdir()
    assert (version / "saved_model.pb").exists()
