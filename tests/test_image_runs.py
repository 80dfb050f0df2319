"""The container image, run as pods run it: another user, no network, little memory.

STAGECRAFT_IMAGE names the image. `make image` builds it.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import uuid
from typing import Any

import pytest
import yaml
from processes import ran, written
from two_steps import spec

IMAGE = os.environ.get("STAGECRAFT_IMAGE", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),  # each step of a pipeline imports TFX in a container of its own
    pytest.mark.skipif(not IMAGE, reason="STAGECRAFT_IMAGE names no image: make image"),
]
STAGECRAFT = str(pathlib.Path(sys.executable).with_name("stagecraft"))

BEAM_PIPELINE = """
import os, socket, subprocess, time
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
pool = subprocess.Popen(["image-entrypoint", "--worker_pool"])
while pool.poll() is None and socket.socket().connect_ex(("localhost", 50000)):
    time.sleep(0.1)
options = PipelineOptions([
    "--runner=PortableRunner", "--job_endpoint=embed",
    "--environment_type=EXTERNAL", "--environment_config=localhost:50000",
])
def where(number):
    import os, stagecraft.schemas
    return f"{number * number} {os.getpid()} {os.environ.get('WORKER_ID')}"
with beam.Pipeline(options=options) as pipeline:
    numbers = pipeline | beam.Create([1, 2, 3]) | beam.Map(where)
    numbers | beam.io.WriteToText("/out/lines", shard_name_template="")
pool.terminate()
print(os.getpid())
"""


@pytest.fixture(scope="session")
def engine() -> str:
    """The program that has the image."""
    for name in ("docker", "podman"):
        if shutil.which(name) and not ran(name, "image", "inspect", IMAGE, code=None).returncode:
            return name
    pytest.fail(f"neither docker nor podman has STAGECRAFT_IMAGE={IMAGE}")


@pytest.fixture
def out(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder that any user may write in."""
    folder = tmp_path / "out"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def run(
    engine: str, out: pathlib.Path, *words: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs the image as a strict cluster does: a random user, a read-only root, no network."""
    return ran(
        *(engine, "run", "--rm", "--network=none", "--read-only", "--user=54321:54321"),
        *("--memory=1g", "--memory-swap=1g", "--shm-size=64k", "--tmpfs=/tmp:size=64m"),
        *(f"--volume={out}:/out", "--security-opt=label=disable", *options, IMAGE, *words),
        timeout=1200,
    )


def emulated(
    folder: pathlib.Path, compiled: dict[str, Any], platform: dict[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a compiled pipeline with each step in a container."""
    documents = [compiled]
    if platform:
        executors = {"deploymentSpec": {"executors": platform}}
        documents.append({"platforms": {"kubernetes": executors}})
    (folder / "tiny.yaml").write_text(yaml.safe_dump_all(documents))
    return ran(
        *(
            STAGECRAFT,
            "emulate",
            "--image",
            IMAGE,
            "--output",
            folder / "run",
            folder / "tiny.yaml",
        ),
        code=None,
    )


def summary(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout.splitlines()[-1])


def test_help(engine: str, out: pathlib.Path) -> None:
    assert "stagecraft emulate FILE" in run(engine, out, "--help").stdout


def test_quickstart_to_a_pushed_model(engine: str, out: pathlib.Path) -> None:
    done = run(engine, out, "run", "--json", "--output", "/out/run", "--require-blessing")
    pushed = pathlib.Path(summary(done)["pushed"])
    assert (out / pushed.relative_to("/out") / "saved_model.pb").stat().st_size


def test_beams_boot_starts_a_worker(engine: str, out: pathlib.Path) -> None:
    options = ("--entrypoint=python",)
    done = run(engine, out, "-c", BEAM_PIPELINE, options=options)
    lines = sorted(line.split() for line in (out / "lines").read_text().splitlines())
    assert [square for square, _, _ in lines] == ["1", "4", "9"]
    assert {pid for _, pid, _ in lines}.isdisjoint({done.stdout.split()[-1]})
    assert all(worker != "None" for _, _, worker in lines), "boot sets WORKER_ID"


def test_each_step_of_the_compiled_quickstart(engine: str, out: pathlib.Path) -> None:
    run(engine, out, "compile", "--output", "/out/quickstart.yaml")
    done = ran(
        *(STAGECRAFT, "emulate", "--image", IMAGE, "--json", "--output", out / "emulated"),
        out / "quickstart.yaml",
    )
    result = summary(done)
    assert {step["state"] for step in result["steps"].values()} == {"done"}
    assert result["blessed"]
    pushed = result["pushed"].replace("minio://", "minio/")
    assert (out / "emulated" / "store" / pushed / "saved_model.pb").stat().st_size


def test_a_step_is_in_a_pod(engine: str, tmp_path: pathlib.Path) -> None:
    look = (
        "import json, os, pathlib, socket\n"
        "count = pathlib.Path('/claim/count')\n"
        "count.write_text(str(int(count.read_text()) + 1 if count.exists() else 1))\n"
        "shm = os.statvfs('/dev/shm')\n"
        "print(json.dumps({'user': [os.getuid(), os.getgid()],\n"
        "  'network': sorted(name for _, name in socket.if_nameindex()),\n"
        "  'shm': shm.f_blocks * shm.f_frsize, 'key': os.environ['AWS_ACCESS_KEY_ID'],\n"
        "  'count': count.read_text()}))\n"
    )
    entry = {
        "secretAsEnv": [
            {"secretName": "s", "keyToEnv": [{"secretKey": "k", "envVar": "AWS_ACCESS_KEY_ID"}]}
        ],
        "pvcMount": [{"constant": "data", "mountPath": "/claim", "subPath": "a/b"}],
        "emptyDirMounts": [{"mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": "3Mi"}],
    }
    for count in ("1", "2"):
        done = emulated(tmp_path, spec({"look": look}), {"exec-look": entry})
        log = tmp_path / "run" / "runs" / summary(done)["run_id"] / "look.log"
        assert json.loads(log.read_text()) == {
            "user": [1000, 0],
            "network": ["lo"],
            "shm": 3 * 2**20,
            "key": os.environ.get("AWS_ACCESS_KEY_ID", "emulated"),
            "count": count,
        }


def test_a_step_over_its_memory_limit(engine: str, tmp_path: pathlib.Path) -> None:
    compiled = spec({"grow": "held = [b'x' * 10**6 for _ in range(400)]"})
    container = compiled["deploymentSpec"]["executors"]["exec-grow"]["container"]
    container["resources"] = {"memoryLimit": 0.1, "resourceMemoryLimit": "100Mi"}
    done = emulated(tmp_path, compiled)
    assert done.returncode == 1
    cause = summary(done)["steps"]["grow"]["cause"]
    assert {"(OOMKilled),", str(100 * 2**20), "kubeflow.steps.grow.memory"} <= set(cause.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_container_is_left(engine: str, tmp_path: pathlib.Path, number: int) -> None:
    mark = uuid.uuid4().hex
    wait = f"import time\nopen('/claim/started', 'w').write('{mark}')\ntime.sleep(500)\n"
    entry = {"pvcMount": [{"constant": "data", "mountPath": "/claim"}]}
    executors = {"deploymentSpec": {"executors": {"exec-wait": entry}}}
    file, folder = tmp_path / "tiny.yaml", tmp_path / "run"
    documents = [spec({"wait": wait}), {"platforms": {"kubernetes": executors}}]
    file.write_text(yaml.safe_dump_all(documents))
    process = subprocess.Popen(
        [STAGECRAFT, "emulate", "--image", IMAGE, "--output", str(folder), str(file)]
    )
    try:
        assert written(folder / "claims" / "data" / "started") == mark
        process.send_signal(number)
        code = process.wait(60)
    finally:
        process.kill()
    assert code == (130 if number == signal.SIGINT else -signal.SIGKILL)
    if number == signal.SIGKILL:  # the next run removes what is left of a killed one
        emulated(tmp_path, spec({"say": "print(1)"}))
    label = f"label=stagecraft.emulated={folder}"
    assert not ran(engine, "ps", "--all", "--quiet", "--filter", label).stdout


def test_the_image_of_a_new_project(engine: str, tmp_path: pathlib.Path) -> None:
    project = tmp_path / "project"
    ran(STAGECRAFT, "init", project)
    dockerfile = project / "Dockerfile"
    [base] = [line for line in dockerfile.read_text().splitlines() if line.startswith("FROM ")]
    assert base == f"FROM {IMAGE}"
    name = f"stagecraft-test:{uuid.uuid4().hex}"
    ran(engine, "build", "--network=host", "-t", name, project)
    try:
        look = "import models.model, pipeline.configs, stagecraft; print(stagecraft.__version__)"
        run_it = ("run", "--rm", "--network=none", "--entrypoint=python", name, "-c", look)
        assert ran(engine, *run_it).stdout.split()[-1] == IMAGE.rpartition(":")[2]
    finally:
        ran(engine, "rmi", "--force", name)
