import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from stagecraft.trainer_module.parallel.cluster import Cluster
from stagecraft.trainer_module.processes.rendezvous import (
    PeersMissingError,
    unreachable,
    wait_for_peers,
)


def _ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _worker(ports: list[int], index: int) -> Cluster:
    addresses = tuple(f"127.0.0.1:{port}" for port in ports)
    return Cluster(role="worker", index=index, workers=addresses, ps=(), has_chief=False)


def test_all_come():
    ports = _ports(3)
    met: list[int] = []

    def come(index: int) -> None:
        time.sleep(0.3 * index)
        # An alarm is for the main thread.
        from stagecraft.trainer_module.processes import rendezvous

        rendezvous._meet(_worker(ports, index), 20)
        with socket.create_server(("127.0.0.1", ports[index])):  # as TensorFlow's server does
            met.append(index)
            everybody.wait(20)

    everybody = threading.Barrier(3)
    threads = [threading.Thread(target=come, args=[index]) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(met) == [0, 1, 2]


def test_one_does_not_come():
    ports = _ports(2)
    named = rf"^worker 1 \(127.0.0.1:{ports[1]}\): not reachable after 1 s"
    with pytest.raises(PeersMissingError, match=named), wait_for_peers(_worker(ports, 0), 1):
        pass


def test_a_port_that_is_taken():
    ports = _ports(2)
    taken = rf"worker 0: the port of 127.0.0.1:{ports[0]} is in use"
    with (
        socket.create_server(("127.0.0.1", ports[0])),
        pytest.raises(PeersMissingError, match=taken),
        wait_for_peers(_worker(ports, 0), 1),
    ):
        pass


def test_one_alone_waits_for_nobody():
    with wait_for_peers(None, 0):
        pass


def test_one_that_is_lost_in_between_is_not_waited_for():
    code = (
        "import re\n"  # a long match holds Python's lock, as TensorFlow does
        "from stagecraft.trainer_module.processes import rendezvous\n"
        "rendezvous._meet = lambda members, seconds: None\n"
        "with rendezvous.wait_for_peers(object(), 0.5):\n"
        "    re.match('(a*)*b', 'a' * 40)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=30, check=False)
    assert done.returncode == -signal.SIGALRM


def test_unreachable():
    with socket.create_server(("127.0.0.1", 0)) as there:
        here = f"127.0.0.1:{there.getsockname()[1]}"
        (port,) = _ports(1)
        assert unreachable([here, f"127.0.0.1:{port}", "no.such.host.invalid:1"]) == [
            f"127.0.0.1:{port}",
            "no.such.host.invalid:1",
        ]
