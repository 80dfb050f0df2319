"""The real command with the repository's own file: exit codes, stdout, and the present folder.

The other verbs, in this process, have test_verbs.py.
"""

import os
import pathlib
import re
import sys

import pytest
from processes import ran

ROOT = pathlib.Path(__file__).resolve().parents[3]
RUNNER = ROOT / "kubeflow_v2_runner.py"
NAMED = "--pipeline-name=quickstart"

# Each command imports TFX.
pytestmark = pytest.mark.timeout(1500)


def command(project, *words, **variables):
    """Gives a command in an environment that has never heard of this one's bin folder."""
    environment = {**os.environ, "PATH": os.defpath, **variables}
    environment.pop("PYTHONPATH", None)
    program = pathlib.Path(sys.executable).with_name("stagecraft")
    return ran(program, "tfx", *words, code=None, cwd=project.present, env=environment)


@pytest.mark.full
def test_from_create_to_delete(project):
    server = project.server

    def kubeflow(*words, code=0, **variables):
        done = command(
            project, *words, "--engine=kubeflow", f"--endpoint={server.url}", **variables
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert list(project.present.iterdir()) == []
        return done.stdout if code == 0 else done.stderr.splitlines()[-1]

    path = f"--pipeline-path={RUNNER}"
    created = kubeflow("pipeline", "create", path, STAGECRAFT_SET="train.batch_size=32")
    [pipeline] = server.pipelines
    first, second, page, last = created.splitlines()
    assert (first, second) == ("CLI", "Creating pipeline")
    assert page.endswith(f"page at {server.url}/#/pipelines/details/{pipeline}")
    assert last == 'Pipeline "quickstart" created successfully.'
    assert kubeflow("pipeline", "create", path, code=1) == 'Pipeline "quickstart" already exists.'

    assert "for pipeline: quickstart" in kubeflow(
        "run", "create", NAMED, "--runtime-parameter=train_steps=7"
    )
    run = server.run()
    parameters = run.runtime_config["parameters"]
    assert (parameters["train_steps"], parameters["train_batch_size"]) == (7, 32)
    assert "deleted successfully.\n" in kubeflow("pipeline", "delete", NAMED)
    assert server.pipelines == server.versions == {}


@pytest.mark.full
def test_what_is_no_business_of_ours(project):
    shown = command(project, "--help")
    assert shown.returncode == 0
    # TensorFlow 2.21 writes these at import, whatever TF_CPP_MIN_LOG_LEVEL says.
    ours = [
        line for line in shown.stderr.splitlines() if not re.match("WARNING: All log|I0000", line)
    ]
    assert ours == []
    assert shown.stdout.startswith("Usage: stagecraft tfx [OPTIONS] COMMAND [ARGS]...")
    places = "kubeflow.image=mine:1 kubeflow.pipeline_root=gs://bucket/stagecraft"
    words = ("pipeline", "compile", "--engine=vertex", f"--pipeline-path={RUNNER}")
    compiled = command(project, *words, STAGECRAFT_SET=places)
    assert compiled.returncode == 0, compiled.stderr
    assert "quickstart compiled successfully." in compiled.stdout
    assert [path.name for path in project.present.iterdir()] == ["pipeline.json"]
