"""Compiled pipelines from end to end, under the emulated launcher."""

import csv
import json
import os
import random
import subprocess
import sys
from typing import Any, NamedTuple

import compiled_by
import pytest
from processes import ran, written
from support import STAGECRAFT, TINY

pytestmark = pytest.mark.timeout(1200)  # several runs each

ARCHIVE = "out/store/minio/mlpipeline/data/cifar-10-binary.tar.gz"


class Emulated(NamedTuple):
    code: int
    summary: dict[str, Any]
    stderr: str

    def states(self):
        return {name: step["state"] for name, step in self.summary["steps"].items()}

    def ran(self):
        return {name for name, state in self.states().items() if state == "done"}


def emulate(file, output, *words, path=None, forked=None):
    """Runs the command, and pods, in processes of their own, or as forks of the fork server's."""
    variables = {}
    if path is not None:
        variables["PYTHONPATH"] = str(path)
    if forked is not None:
        variables["FORK_SERVER"] = str(forked / "socket")
    program = STAGECRAFT if forked is None else forked / "stagecraft"
    words = ("emulate", file, "--output", output, *words)
    done = ran(program, *words, code=None, variables=variables)
    return Emulated(done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr)


@pytest.fixture
def tiny(cifar10_small, tmp_path):
    """A compiled pipeline, whose data is in the store of ``out`` beside it."""
    archive = tmp_path / ARCHIVE
    archive.parent.mkdir(parents=True)
    archive.write_bytes((cifar10_small / archive.name).read_bytes())
    settings = ("name=tiny", *(setting for setting in TINY if not setting.startswith("data.")))
    ran(
        *(STAGECRAFT, "compile", "--output", tmp_path / "tiny.yaml"),
        *("--data", "minio://mlpipeline/data/cifar-10-binary.tar.gz"),
        *(word for setting in settings for word in ("--set", setting)),
    )
    return tmp_path / "tiny.yaml"


@pytest.mark.full
@pytest.mark.slow
def test_real_pictures_from_the_object_store(tiny, tmp_path, programs):
    output = tmp_path / "out"
    bucket = output / "store" / "minio" / "mlpipeline"

    # What is given when the run starts counts.
    first = emulate(tiny, output, "--parameter", "train_steps=7", forked=programs)
    assert first.code == 0, first.stderr
    assert set(first.states().values()) == {"done"}
    assert first.summary["blessed"]
    prefix = "minio://mlpipeline/stagecraft/serving/tiny/"
    assert first.summary["pushed"].startswith(prefix)
    pushed = bucket / "stagecraft/serving/tiny" / first.summary["pushed"].removeprefix(prefix)
    assert (pushed / "saved_model.pb").exists()
    [record] = (bucket / "stagecraft" / "tiny").glob("*/Trainer/*/model_run/record.json")
    assert json.loads(record.read_text())["steps"] == 7

    # Nothing has changed: only what looks runs.
    again = emulate(tiny, output, "--parameter", "train_steps=7", forked=programs)
    assert again.ran() == {"Cifar10ExampleGen-inputs", "Baseline"}
    assert again.summary["pushed"] == first.summary["pushed"]

    # Other data behind the same address is not served from the cache; a step that fails is the end.
    # The pods of this run are what they are elsewhere: each is a Python that imports all it needs.
    archive = tmp_path / ARCHIVE
    archive.write_bytes(archive.read_bytes()[:100_000])
    broken = emulate(tiny, output, "--parameter", "train_steps=7")
    assert broken.code == 1
    assert broken.states()["Cifar10ExampleGen"] == "failed"
    assert broken.states()["Trainer"] == "skipped"
    assert "cifar-10-binary.tar.gz" in broken.stderr and "Traceback" not in broken.stderr
    assert broken.summary["pushed"] is None


@pytest.fixture
def job_server(tmp_path):
    """Address and log of Beam's job server in Python, whose workers see the store alone."""
    port, log = tmp_path / "port", tmp_path / "job_server.log"
    module = "apache_beam.runners.portability.local_job_service_main"
    variables = {**os.environ, "STAGECRAFT_STORE": str(tmp_path / "out" / "store")}
    with log.open("wb") as output:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                module,
                "--port_file",
                port,
                "--staging_dir",
                tmp_path / "staged",
            ],
            env=variables,
            stdout=output,
            stderr=output,
        )
    yield f"localhost:{written(port)}", log
    server.terminate()
    server.wait()


@pytest.mark.full
def test_workers_elsewhere_read_and_write_the_object_store(tmp_path, job_server, programs):
    """The pods and the workers have nothing in common but the store."""
    endpoint, log = job_server
    args = (
        f"--job_endpoint={endpoint}",
        "--job_server_timeout=600",
        "--environment_type=beam:env:harness_subprocess_python:v1",
        f"--environment_config={sys.executable} -m apache_beam.runners.worker.sdk_worker_main",
        "--sdk_container_image=unused",
    )
    settings = ("name=tiny", "beam.runner=flink", f"beam.args={json.dumps(args)}", *TINY)
    ran(
        *(STAGECRAFT, "compile", "--output", tmp_path / "tiny.yaml"),
        *(word for setting in settings for word in ("--set", setting)),
    )
    done = emulate(tmp_path / "tiny.yaml", tmp_path / "out", forked=programs)
    assert done.code == 0, done.stderr
    assert set(done.states().values()) == {"done"}
    assert done.summary["blessed"]
    # ExampleGen, StatisticsGen, Transform and Evaluator.
    assert log.read_text().count("Completed job") >= 4


@pytest.mark.full
def test_another_model_is_compared_with_the_one_that_was_blessed(tiny, tmp_path):
    output = tmp_path / "out"
    first = emulate(tiny, output)
    other = emulate(tiny, output, "--parameter", "train_seed=1")
    assert other.ran() >= {"Trainer", "Baseline", "Evaluator"}
    assert set(other.states().values()) <= {"done", "cached"}, other.stderr
    [log] = output.glob(f"runs/{other.summary['run_id']}/Baseline.log")
    model = f"minio://mlpipeline/stagecraft/tiny/{first.summary['run_id']}/Trainer/"
    assert f"model: {model}" in log.read_text()


@pytest.mark.full
def test_a_pipeline_that_is_not_ours(tmp_path):
    output = tmp_path / "out"
    folder = output / "store" / "minio" / "data" / "points"
    folder.mkdir(parents=True)
    chance = random.Random(0)
    points = [(chance.uniform(-1, 1), chance.uniform(-1, 1)) for _ in range(300)]
    with (folder / "points.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["x", "y", "above"])
        rows.writerows([x, y, int(y > x)] for x, y in points)
    compiled_by.ours(compiled_by.points(), tmp_path)
    done = emulate(tmp_path / "ours.yaml", output, path=compiled_by.PROJECT)
    assert done.code == 0, done.stderr
    assert set(done.states().values()) == {"done"}
    assert {"CsvExampleGen-inputs", "latest-blessed-model-resolver"} < done.states().keys()
    assert done.summary["blessed"]
    assert done.summary["pushed"].startswith("minio://mlpipeline/points/serving/")
