"""A server of the Kubernetes API, and the real client that asks it."""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from kube_api import KubeApi, kube_api

from stagecraft.components.kubernetes.api.connection import connect


@pytest.fixture
def server(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    with kube_api() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
        yield api


@pytest.fixture
def client(server: KubeApi) -> Any:
    return connect()
