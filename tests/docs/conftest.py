"""A reader of the documentation, with a Kubeflow that is emulated."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import kfp_server
import pytest
from kube_api import kube_api
from reading import Reader

HERE = pathlib.Path(__file__).resolve().parent

IMPORTED = (
    "tensorflow",
    "tfx.v1",
    "tfx.tools.cli.cli_main",
    "kfp",
    "stagecraft.pipeline.cli.compiling",
    "stagecraft.pipeline.cli.planning",
    "stagecraft.pipeline.kubeflow.client.api",
    "stagecraft.pipeline.local.worker",
    "stagecraft.trainer_module.run_fn",
)

A_RUN = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""Any run's ID: the server gives its own."""


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """Folder of ``python``, ``stagecraft`` and ``tfx``, each of which is a fork of one process."""
    folder = tmp_path_factory.mktemp("programs")
    client = f"#!{sys.executable} -IS\n" + (HERE / "client.py").read_text()
    for name in ("python", "stagecraft", "tfx"):
        (folder / name).write_text(client)
        (folder / name).chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", HERE / "fork_server.py", folder / "socket", *IMPORTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"},
    )
    assert server.stdin and server.stdout
    assert server.stdout.readline() == b"ready\n"
    yield folder
    server.stdin.close()
    server.wait()
    server.stdout.close()


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
            script = script.replace("https://kubeflow.example.com/pipeline", server.url)
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
