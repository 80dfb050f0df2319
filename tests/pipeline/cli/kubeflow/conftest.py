"""``stagecraft kubeflow`` in this process, against servers on ports of this machine."""

import copy
import functools
import json
import os

import pytest
import two_steps
import yaml
from click.testing import CliRunner
from kfp_server import serving
from kube_api import kube_api

from stagecraft.pipeline.cli.main import main

_TINY = two_steps.pipeline(
    {
        "word": {"parameterType": "STRING", "defaultValue": "hello"},
        "count": {"parameterType": "NUMBER_INTEGER", "defaultValue": 3},
        "loud": {"parameterType": "BOOLEAN", "defaultValue": False},
    },
    say="print('done')",
    description="says something",
)


_OURS = ("KF_PIPELINES", "STAGECRAFT_", "KUBE", "XDG_", "GOOGLE_", "HTTP_PROXY", "HTTPS_PROXY")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty home and folder, and none of the settings of whoever runs this."""
    import kfp.client.auth

    from stagecraft.components.kubernetes.api import pod_logs
    from stagecraft.pipeline.kubeflow.client import runs

    for name in [name for name in os.environ if name.upper().startswith(_OURS)]:
        monkeypatch.delenv(name)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    # Both clients look for their files when they are imported.
    of_kubectl = str(folder / "kubeconfig")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", of_kubectl)
    of_kfp = folder / ".config" / "kfp"
    monkeypatch.setattr(kfp.client.auth, "LOCAL_KFP_CREDENTIAL", str(of_kfp / "credentials.json"))
    monkeypatch.setattr(kfp.client.Client, "_LOCAL_KFP_CONTEXT", str(of_kfp / "context.json"))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(runs, "POLL_SECONDS", 0.0)
    for waits in (pod_logs.followed, pod_logs.merged):
        monkeypatch.setitem(waits.__kwdefaults__, "sleep", lambda seconds: None)
    return folder


@pytest.fixture(params=["2.5", "2.16"])
def server(request):
    """For a single user."""
    with serving(request.param) as server:
        yield server


@pytest.fixture(params=["2.5", "2.16"])
def shared_server(request):
    """For several users, of whom this is one of namespace ``team``."""
    with serving(request.param, multi_user=True) as server:
        yield server


@pytest.fixture
def cluster(home):
    """Where the pods are; kubectl's configuration names it."""
    with kube_api() as api:
        api.kubeconfig(home / "kubeconfig")
        yield api


@pytest.fixture
def command():
    """``command("runs", "list", …)``: what ``stagecraft kubeflow`` comes to, without traceback."""

    def command(*words, stdin=None):
        given = ["kubeflow", *(str(word) for word in words)]
        done = CliRunner().invoke(main, given, input=stdin)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return command


@pytest.fixture
def ask(command, request):
    """The same at the test's server."""
    several = "shared_server" in request.fixturenames
    server = request.getfixturevalue("shared_server" if several else "server")
    return functools.partial(_at, command, server, ("--namespace", "team") if several else ())


def _at(command, server, more, *words):
    return command(*words, "--endpoint", server.url, *more)


@pytest.fixture
def told(ask):
    """The object that a command prints with ``--json``."""

    def told(*words, code=0):
        done = ask(*words, "--json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    return told


@pytest.fixture
def refused(ask):
    """``refused("runs", "show", "none")``: the command's one error."""

    def refused(*words):
        done = ask(*words, "--json")
        error = json.loads(done.stdout)["error"]
        assert (done.exit_code, done.stderr) == (1, f"Error: {error}\n")
        return error

    return refused


@pytest.fixture
def write(tmp_path):
    """Writes a tiny pipeline, with changes: ``write(name="other")``, ``write(command="x")``."""

    def write(file="tiny.yaml", *, name="tiny", command="", platform=None):
        document = copy.deepcopy(_TINY)
        document["pipelineInfo"]["name"] = name
        if command:
            container = document["deploymentSpec"]["executors"]["exec-say"]["container"]
            container["command"] = ["echo", command]
        path = tmp_path / file
        path.write_text(yaml.safe_dump_all([document, *([platform] if platform else [])]))
        return path

    return write


@pytest.fixture
def tiny(write):
    """A pipeline of two steps, ``say`` and ``after``."""
    return write()


@pytest.fixture
def uploaded(ask, tiny):
    """The server has that pipeline."""
    assert ask("pipelines", "create", tiny).exit_code == 0
    return tiny


@pytest.fixture(scope="session")
def preset(tmp_path_factory):
    """The quickstart, compiled, with a platform document."""
    from stagecraft.pipeline.kubeflow.compile import compile_pipeline
    from stagecraft.pipeline.settings import load

    path = tmp_path_factory.mktemp("compiled") / "quickstart.yaml"
    compile_pipeline(load("quickstart", ("kubeflow.every_step.image_pull_policy=Always",)), path)
    assert len(list(yaml.safe_load_all(path.read_text()))) == 2
    return path
