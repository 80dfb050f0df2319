"""Another user of this machine reaches no process of a training."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

import pytest

from stagecraft.trainer_module.parallel.cluster import free_ports
from stagecraft.trainer_module.processes import isolation, launcher
from stagecraft.trainer_module.processes.process import Process
from stagecraft.trainer_module.processes.training_task import TrainingTask
from stagecraft.trainer_module.settings import ParallelSettings

ATTACK = pathlib.Path(__file__).with_name("attack.py")
NOBODY = 65534

TALK = """
import os, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
with socket.create_connection(server.getsockname(), 5):
    print(os.getuid(), os.readlink("/proc/self/ns/net"), flush=True)
sys.stdin.read()
"""


def own() -> str:
    return os.readlink("/proc/self/ns/net")


@pytest.fixture
def namespace() -> Iterator[isolation.Namespace]:
    try:
        made = isolation.create()
    except isolation.IsolationError as error:
        pytest.skip(f"needs network namespaces: {error}")
    with made:
        yield made


def test_processes_meet_inside_and_nobody_reaches_them_from_outside(namespace):
    [port] = free_ports(1)
    with subprocess.Popen(
        namespace.command([sys.executable, "-c", TALK, str(port)]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=namespace.descriptors,
        text=True,
    ) as process:
        assert process.stdout is not None
        user, there = process.stdout.readline().split()
        assert (int(user), there != own()) == (os.getuid(), True)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
        reach = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
        done = subprocess.run(
            namespace.command([sys.executable, "-c", reach, str(port)]),
            pass_fds=namespace.descriptors,
        )
        assert done.returncode == 0
        process.communicate()


BY_ANOTHER = """
import importlib.util, os, subprocess, sys
spec = importlib.util.spec_from_file_location("isolation", sys.argv[1])
isolation = sys.modules["isolation"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(isolation)
program = "import os; print(os.getuid(), open('mine').read(), os.readlink('/proc/self/ns/net'))"
with isolation.create() as made:
    words = made.command([sys.executable, "-c", program])
    done = subprocess.run(words, pass_fds=made.descriptors, capture_output=True, text=True)
print(done.stdout.strip() or done.stderr)
"""


@pytest.fixture
def of_nobody() -> Iterator[pathlib.Path]:
    """A folder that another user can enter: pytest's own are closed above it."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        yield pathlib.Path(folder)


def test_without_privileges(request):
    """In a user namespace, in which files keep their owner."""
    python = next(
        (each for each in ("/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(each)),
        "",
    )
    if os.getuid() or not python:
        pytest.skip("needs root, and a Python that other users can run")
    folder = request.getfixturevalue("of_nobody")
    shutil.copy(isolation.__file__, folder / "isolation.py")
    (folder / "isolation.py").chmod(0o644)
    (folder / "mine").write_text("own")
    os.chown(folder / "mine", NOBODY, NOBODY)
    (folder / "mine").chmod(0o600)
    done = subprocess.run(
        [python, "-c", BY_ANOTHER, str(folder / "isolation.py")],
        capture_output=True,
        text=True,
        cwd=folder,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    if "IsolationError" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    user, content, there = done.stdout.split()
    assert (int(user), content, there != own()) == (NOBODY, "own", True)


REPORT = """
import os, sys
os.write(int(sys.argv[-1]), b'{"event": "started"}\\n{"event": "done"}\\n')
print(os.readlink("/proc/self/ns/net"))
"""

TWO: dict[str, Any] = {"strategy": "multi_worker_mirrored", "workers": 2}


def networks(folder: pathlib.Path, **parallel: Any) -> tuple[set[str], list[str]]:
    """The networks of a training's processes, and why they are the machine's."""
    (folder / "report.py").write_text(REPORT)
    lines: list[str] = []
    events: list[dict[str, Any]] = []
    files = parallel.pop("files", "/data/train-0")
    launcher.run_local(
        TrainingTask(
            "module.run_fn",
            types.SimpleNamespace(train_files=[files], custom_config={"settings": {}}),
        ),
        ParallelSettings(**TWO | parallel),
        on_event=events.append,
        write_log=lines.append,
        program=[str(folder / "report.py")],
    )
    reasons = [each["reason"] for each in events if each.get("phase") == "network"]
    return {line.rpartition(" ")[2] for line in lines if "net:" in line}, reasons


def test_the_processes_of_a_local_run_have_a_network_of_their_own(namespace, tmp_path):
    [one], reasons = networks(tmp_path)
    assert one != own() and reasons == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"files": "s3://bucket/train-0"}, "s3://bucket/train-0 is on the network"),
        ({"isolated": False}, "parallel.isolated is false"),
    ],
)
def test_who_needs_the_network_has_it_and_says_so(given, reason, tmp_path):
    assert networks(tmp_path, **given) == ({own()}, [reason])


def test_where_the_system_forbids_it_there_is_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(isolation, "_PROGRAM", (sys.executable, "-c", "raise SystemExit('no')"))
    assert networks(tmp_path) == ({own()}, ["no"])


SERVE = """
import json, os, sys
from stagecraft.trainer_module.engines import parameter_server
from stagecraft.trainer_module.processes import loopback
restrict = loopback.restrict
def told(address):
    restrict(address)
    os.write(int(sys.argv[-1]), b'{"event": "started"}\\n')
loopback.restrict = told
parameter_server.serve()
"""


@pytest.mark.slow
@pytest.mark.parametrize("isolated", [False, True])
def test_another_user_and_a_parameter_server(isolated, tmp_path):
    """The attack works where the server shares the machine's network, and only there."""
    if os.getuid():
        pytest.skip("needs root, to become another user")
    (tmp_path / "serve.py").write_text(SERVE)
    secret, target = tmp_path / "secret", tmp_path / "target"
    secret.write_text("the secret")
    secret.chmod(0o600)
    told: list[str] = []
    [port] = free_ports(1)
    config = {"cluster": {"ps": [f"127.0.0.1:{port}"]}, "task": {"type": "ps", "index": 0}}
    variables = {"TF_CONFIG": json.dumps(config), "PYTHONPATH": os.pathsep.join(sys.path)}
    with isolation.network(isolated, [], told.append) as made:
        if isolated and made is None:
            pytest.skip(told[0])
        process = Process([str(tmp_path / "serve.py")], environment=variables, namespace=made)
        try:
            assert process.read() == [{"event": "started"}]
            words = [sys.executable, str(ATTACK), str(port), str(secret), str(target)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        finally:
            process.kill()
            process.close()
    if isolated:
        assert done.stdout.strip() == "no connection: ConnectionRefusedError"
        assert not target.exists()
    else:
        assert done.stdout.strip() == "read: the secret"
        assert (target.read_text(), target.stat().st_uid) == ("by another user", 0)
