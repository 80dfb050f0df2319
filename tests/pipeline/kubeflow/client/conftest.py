"""The real kfp client, without settings of whoever runs this."""

import contextlib
import io
import warnings

import kfp_server
import pytest
import two_steps
import yaml

_TINY = two_steps.pipeline()


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(two_steps.pipeline()))
    return path


@pytest.fixture
def quiet(tmp_path, monkeypatch):
    """No settings of whoever runs this, and none of what the client prints and warns of."""
    monkeypatch.setenv("HOME", str(tmp_path / "no-home"))
    for name in ("KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def connected():
    """``connected(server, …)``: kfp's client."""

    def connect(server, **options):
        import kfp.client

        # Taken from HOME when the module was imported.
        kfp.client.Client._LOCAL_KFP_CONTEXT = "/nonexistent/context.json"
        return kfp.client.Client(host=server.url, **options)

    return connect


@pytest.fixture
def create_run():
    """``create_run(server, …)``: a run of a tiny pipeline; the status and the answer."""

    def create(server, spec=_TINY, **more):
        config = {"parameters": {"word": "a"}}
        given = {"display_name": "r", "pipeline_spec": spec, "runtime_config": config, **more}
        return kfp_server.ask(server, "POST", "runs", given)

    return create
