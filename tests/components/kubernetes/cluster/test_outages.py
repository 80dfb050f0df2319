"""The cluster's API fails, or cannot be reached, in the middle of a training."""

import threading
from typing import Any

import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.api import pod_logs
from stagecraft.components.kubernetes.api.connection import Refused, Unreachable


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are asked for again at once."""
    defaults = pod_logs.followed.__kwdefaults__
    monkeypatch.setitem(defaults, "sleep", lambda seconds: threading.Event().wait(0.01))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_bursts_of_errors(by_hand, status):
    for method in ("GET", "POST"):
        by_hand.server.fail(method, "", status, "Reason", "not now", times=3)
    by_hand.clock.at(60, lambda: by_hand.server.fail("GET", "", status, "Reason", "no", times=3))
    by_hand.run(120)
    assert by_hand.clock.now >= 120
    assert len(by_hand.jobs()) == 1
    assert by_hand.asked("DELETE") == 0


def test_an_answer_that_is_lost(by_hand):
    """The server has created the job, and nobody heard it."""
    by_hand.server.break_off("POST", "/jobs$")
    by_hand.server.break_off("POST", "/services$")
    by_hand.run(60)
    assert len(by_hand.jobs()) == 1
    assert by_hand.asked("POST", "/jobs") == 2


def test_a_conflict_that_is_none(by_hand):
    """As when somebody else changes a quota at the same moment."""
    words = 'Operation cannot be fulfilled on resourcequotas "jobs": the object has been modified'
    by_hand.server.fail("POST", "/jobs$", 409, "Conflict", words, times=2)
    by_hand.run(60)
    assert by_hand.asked("POST", "/jobs") == 3


def test_away_for_half_a_minute(by_hand):
    server = by_hand.server
    by_hand.clock.at(20, lambda: setattr(server, "is_down", True))
    by_hand.clock.at(50, lambda: setattr(server, "is_down", False))
    by_hand.run(70)
    assert by_hand.asked("DELETE") == 0


def test_away_for_ever(by_hand, caplog):
    """The job's end is asked for all the same; if nobody hears that, there is the lease."""
    by_hand.clock.at(20, lambda: setattr(by_hand.server, "is_down", True))
    with pytest.raises(Unreachable, match="RemoteDisconnected"):
        by_hand.training().run()
    assert 300 < by_hand.clock.now < 400
    assert by_hand.asked("DELETE") == 1
    assert "its pods end" in caplog.text.lower()


def test_errors_for_ever(by_hand):
    """Where the end can be asked for, it is."""
    by_hand.clock.at(
        20, lambda: by_hand.server.fail("GET", "", 500, "InternalError", "etcd is away", times=None)
    )
    with pytest.raises(Refused, match="etcd"):
        by_hand.training().run()
    assert by_hand.asked("DELETE") == 1 and by_hand.jobs() == []


def test_logs_that_hang_up(by_hand):
    """Nothing is lost, nothing comes twice."""
    server = by_hand.server

    def begin() -> None:
        for index in (0, 1):
            by_hand.add_pod(f"pod-{index}", index)

    def prints(line: str) -> None:
        for index in (0, 1):
            server.log(f"pod-{index}", line)

    by_hand.clock.at(10, begin)
    for number in range(20):
        by_hand.clock.at(20 + 10 * number, lambda number=number: prints(str(number)))
        if number % 3 == 0:
            by_hand.clock.at(21 + 10 * number, server.hang_up)
    by_hand.clock.at(500, lambda: [server.finish(f"pod-{index}") for index in (0, 1)])
    by_hand.run(510)
    for role in ("worker 0", "worker 1"):
        found = [line for line in by_hand.printed if line.startswith(role)]
        assert found == [f"{role}: {number}" for number in range(20)]


def test_a_log_that_ends_before_its_container(by_hand, monkeypatch):
    """As when a kubelet is started anew: the stream ends well, and the training goes on."""
    read, cut = pod_logs._read, threading.Event()

    def ends_early(*given: Any) -> Any:
        for line in read(*given):
            yield line
            if not cut.is_set():
                cut.set()
                return

    monkeypatch.setattr(pod_logs, "_read", ends_early)
    by_hand.clock.at(10, lambda: by_hand.add_pod("pod-0"))
    for number in range(3):
        by_hand.clock.at(20, lambda number=number: by_hand.server.log("pod-0", str(number)))
    by_hand.clock.at(100, lambda: by_hand.server.finish("pod-0"))
    by_hand.run(110)
    assert by_hand.printed == ["worker 0: 0", "worker 0: 1", "worker 0: 2"]


def test_logs_that_cannot_be_had(by_hand, monkeypatch):
    """The step prints it, and the training continues."""
    monkeypatch.setattr(pod_logs, "PATIENCE_SECONDS", -1.0)
    by_hand.server.fail("GET", "/log$", 502, "BadGateway", "no route to node-0", times=None)
    by_hand.clock.at(10, lambda: [by_hand.add_pod(f"pod-{index}", index) for index in (0, 1)])
    by_hand.run(100)
    [told] = by_hand.printed
    assert "no route to" in told and "node-0" in told and "training continues" in told


def test_deleted_by_somebody_else(by_hand, server):
    jobs = f"/apis/batch/v1/namespaces/{server.namespace}/jobs"
    by_hand.clock.at(
        20, lambda: server.store.delete(by_hand.resource, server.namespace, by_hand.name)
    )
    with pytest.raises(UserError, match="someone"):
        by_hand.training().run()
    assert by_hand.asked("POST", jobs) == 1


def test_replaced_by_somebody_else(by_hand, server):
    """The other one is not ended."""

    def replace() -> None:
        server.store.delete(by_hand.resource, server.namespace, by_hand.name)
        server.store.create(by_hand.resource, server.namespace, by_hand.objects[-1])

    by_hand.clock.at(20, replace)
    with pytest.raises(UserError, match="someone"):
        by_hand.training().run()
    assert len(by_hand.jobs()) == 1
