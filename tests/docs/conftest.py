"""A reader of the documentation, with a Kubeflow that is emulated."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator

import kfp_server
import pytest
from kube_api import kube_api
from reading import Reader

A_RUN = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""Any run's ID: the server gives its own."""


@pytest.fixture(scope="session")
def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What runs leave, so that the data of one page's run is in the cache of the next one's."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def reader(
    programs: pathlib.Path, shared_runs: pathlib.Path, tmp_path: pathlib.Path
) -> Iterator[Reader]:
    """In an empty folder and home, with an emulated Kubeflow at the address that pages name."""
    folder, home = tmp_path / "folder", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    (folder / "runs").symlink_to(shared_runs)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KF_PIPELINES_", "KUBE", "STAGECRAFT_", "XDG_"))
    }
    with kfp_server.serving() as server, kube_api() as cluster:
        variables = {
            **kept,
            "FORK_SERVER": str(programs / "socket"),
            "HOME": str(home),
            "KUBECONFIG": str(cluster.kubeconfig(home / "kubeconfig")),
            "STAGECRAFT_CONTEXTS": str(home / "contexts.yaml"),
        }
        cluster.add("namespaces", "kubeflow")
        spec, status = {"accessModes": ["ReadWriteMany"]}, {"phase": "Bound"}
        cluster.add("persistentvolumeclaims", "training", spec=spec, status=status)
        server.play(kfp_server.end())

        def prepare(script: str) -> str:
            if "tfx pipeline create" in script:  # the other way to upload what is there already
                server.pipelines.clear()
                server.versions.clear()
            for address in ("https://kubeflow.example.com/pipeline", "http://localhost:8080"):
                script = script.replace(address, server.url)
            if A_RUN.search(script):
                run = server.run()
                cluster.add_pod(
                    "trainer",
                    {"pipeline/runid": run.id},
                    namespace="me",  # as the page says
                    annotations={"workflows.argoproj.io/node-name": "x.root.Trainer.executor"},
                    containers=("wait", "main"),
                )
                cluster.finish("trainer", namespace="me")
                script = A_RUN.sub(run.id, script)
            return script

        yield Reader(folder, programs, variables, prepare)
