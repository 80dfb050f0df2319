"""The real kfp client, without settings of whoever runs this."""

from __future__ import annotations

import contextlib
import io
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import kfp_server
import pytest
import two_steps
import yaml


@pytest.fixture
def tiny(tmp_path) -> pathlib.Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(two_steps.pipeline()))
    return path


@pytest.fixture
def quiet(tmp_path, monkeypatch) -> Iterator[None]:
    """No settings of whoever runs this, and none of what the client prints and warns of."""
    monkeypatch.setenv("HOME", str(tmp_path / "no-home"))
    for name in ("KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def connected() -> Callable[..., Any]:
    """``connected(server, …)``: kfp's client."""

    def connect(server: kfp_server.Server, **options: Any) -> Any:
        import kfp.client

        # Taken from HOME when the module was imported.
        kfp.client.Client._LOCAL_KFP_CONTEXT = "/nonexistent/context.json"
        return kfp.client.Client(host=server.url, **options)

    return connect
