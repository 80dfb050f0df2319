import json
import logging
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from stagecraft.trainer_module.parallel.cluster import Cluster, roles
from stagecraft.trainer_module.processes import loopback, rendezvous
from stagecraft.trainer_module.settings import ParallelSettings

LISTEN = pathlib.Path(__file__).parents[1] / "engines" / "listen.py"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Listens at all addresses, as TensorFlow's does."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=dual) as made:
        yield made


def device(one: socket.socket) -> bytes:
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_server_is_kept(server, host):
    port = server.getsockname()[1]
    assert loopback.restrict(f"{host}:{port}")
    assert device(server) == b"lo"
    with socket.create_connection(("127.0.0.1", port), timeout=10), server.accept()[0]:
        pass


@pytest.mark.parametrize("host", ["10.0.0.7", "worker-0.training", "0.0.0.0"])
def test_others_have_to_reach_one_of_a_cluster(server, host):
    assert loopback.restrict(f"{host}:{server.getsockname()[1]}")
    assert device(server) == b""


def test_only_the_one_of_that_port(server):
    with socket.create_server(("", 0)) as other:
        assert loopback.restrict(f"127.0.0.1:{other.getsockname()[1]}")
        assert (device(other), device(server)) == (b"lo", b"")
    client = socket.create_connection(("127.0.0.1", server.getsockname()[1]), timeout=10)
    with client, server.accept()[0]:
        assert loopback.restrict(f"127.0.0.1:{client.getsockname()[1]}")
        assert device(client) == b""  # it does not listen


def test_where_it_cannot_be_done(server, monkeypatch, caplog):
    """On another system than Linux, or an old one."""
    monkeypatch.setattr(loopback, "_DEVICE", b"no-such-device")
    port = server.getsockname()[1]
    with caplog.at_level(logging.WARNING):
        assert not loopback.restrict(f"127.0.0.1:{port}")
    [said] = caplog.messages
    assert f"port {port} of" in said and "all network interfaces" in said and "firewall" in said


OUTSIDE = """
ip link set lo up
unshare --net sleep 60 & other=$!
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
ip link add near type veth peer name far netns $other
ip addr add 10.9.9.1/24 dev near && ip link set near up
inside() { nsenter --target $other --net "$@"; }
inside ip addr add 10.9.9.2/24 dev far && inside ip link set far up
"$PYTHON" -c "$SERVER" "$other"
kill $other
"""

SERVER = """
import socket, subprocess, sys
from stagecraft.trainer_module.processes import loopback
client = "import socket; socket.create_connection(('10.9.9.1', {}), 5)"
server = socket.create_server(("", 0))
port = server.getsockname()[1]
enter = ["nsenter", "--target", sys.argv[1], "--net", sys.executable, "-c", client.format(port)]
print(subprocess.run(enter, capture_output=True).returncode)
loopback.restrict(f"127.0.0.1:{port}")
socket.create_connection(("127.0.0.1", port))
print(subprocess.run(enter, capture_output=True, text=True).stderr.splitlines()[-1])
"""


def test_from_another_machine():
    """One that a cable of the kernel's own leads to."""
    spaces = ["unshare", "--user", "--map-root-user", "--net", "bash", "-c"]
    needed = "ip link add near type veth peer name far && nsenter --version"
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))) or (
        subprocess.run([*spaces, needed], capture_output=True).returncode
    ):
        pytest.skip("needs user namespaces and iproute2")
    environment = os.environ | {"PYTHON": sys.executable, "SERVER": SERVER}
    done = subprocess.run([*spaces, OUTSIDE], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines() == [
        "0",
        "ConnectionRefusedError: [Errno 111] Connection refused",
    ], done.stderr


def test_where_workers_meet():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    members = Cluster(
        role="worker", index=0, workers=(f"127.0.0.1:{port}",), ps=(), has_chief=False
    )
    with rendezvous._listening("worker 0", members.address):
        [found] = [
            each.laddr
            for each in psutil.Process().net_connections("inet")
            if each.status == psutil.CONN_LISTEN and each.laddr.port == port
        ]
    assert found.ip == "127.0.0.1"


@pytest.mark.slow
@pytest.mark.parametrize(
    "parallel",
    [
        {"strategy": "multi_worker_mirrored", "workers": 2},
        {"strategy": "parameter_server", "workers": 1, "ps": 1},
    ],
    ids=lambda parallel: str(parallel["strategy"]),
)
def test_a_training_of_several_processes(parallel):
    """All that its processes listen on, once they are connected."""
    started = []
    try:
        for role in roles(ParallelSettings(**parallel)):
            environment = os.environ | {"TF_CONFIG": role.tf_config or ""}
            started.append(
                subprocess.Popen(
                    [sys.executable, LISTEN, json.dumps(parallel)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment,
                )
            )
        for process in started:
            assert process.stdout is not None
            found = json.loads(process.stdout.readline())
            assert found
            assert {where for where in map(tuple, found) if where[1] != "lo"} == set()
    finally:
        for process in started:
            process.kill()
            process.communicate()
