"""A process of a topology that connects, and prints where it listens from then on.

    TF_CONFIG=… python listen.py '{"strategy": "parameter_server", "workers": 1}'

A line of JSON: host and device of each socket, as ``[["::", "lo"]]``.
"""

import contextlib
import json
import os
import socket
import sys

from stagecraft.trainer_module.engines.factory import connect
from stagecraft.trainer_module.engines.parameter_server import serve
from stagecraft.trainer_module.parallel import cluster, topology
from stagecraft.trainer_module.processes import loopback, rendezvous
from stagecraft.trainer_module.settings import ParallelSettings

keep = loopback.restrict


def listening() -> list[tuple[str, str]]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:
            if one.family != socket.AF_UNIX and one.getsockopt(
                socket.SOL_SOCKET, socket.SO_ACCEPTCONN
            ):
                device = one.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
                found.append((one.getsockname()[0], device.rstrip(b"\0").decode()))
    return found


def keep_and_tell(address: str) -> bool:
    done = keep(address)
    print(json.dumps(listening()), flush=True)
    return done


def main(parallel: str) -> None:
    loopback.restrict = keep_and_tell
    asked = ParallelSettings(**json.loads(parallel))
    here = cluster.training(asked)
    assert here is not None
    if asked.strategy == "parameter_server" and here.role != "chief":
        serve()
    with rendezvous.wait_for_peers(here, 120):
        connect(topology.resolve(asked), asked)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
