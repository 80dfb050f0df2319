"""Logs of pods: of one pod, or of several at the same time."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import kubernetes
import urllib3
from kubernetes.config import dateutil

from stagecraft.components.kubernetes.api.connection import Refused, Unreachable, explained
from stagecraft.components.kubernetes.api.pod_status import REMEDY, Pod, pods

__all__ = ["Pod", "followed", "lines", "merged", "pods"]
PATIENCE_SECONDS = 300.0  # how long the API server may fail or not answer while a log is followed
_SILENCE_SECONDS = 600.0
"""After so long without data, the reader reconnects: the other end may be gone."""

_SLACK_SECONDS = 60.0
"""The largest difference between clocks. Lines that are read twice for it are skipped."""


def lines(
    client: kubernetes.client.ApiClient,
    namespace: str,
    pod: str,
    *,
    container: str,
    tail: int | None = None,
) -> Iterator[str]:
    """Lines of a container's log up to now, without line ends.

    Raises:
        Refused: the credentials may not read it, the pod is gone, or its container has not started
            (400).
        Unreachable: the connection broke.
    """
    options = {} if tail is None else {"tail_lines": tail}
    try:
        yield from _read(client, namespace, pod, container, options)
    except Broken as error:
        raise Unreachable(f"The log of pod {pod} in {namespace} broke off ({error}).") from None


def followed(
    client: kubernetes.client.ApiClient,
    namespace: str,
    pod: str,
    *,
    container: str,
    tail: int | None = None,
    patient: Callable[[], bool] = lambda: True,
    ended: Callable[[], bool] = lambda: True,
    sleep: Callable[[float], Any] = time.sleep,
) -> Iterator[str]:
    """Lines of a container's log as they are written, until the container ends.

    Waits for a container to start while ``patient()`` is true. Reconnects at the same line after a
    connection breaks (proxies close quiet ones), or ends before ``ended()`` is true (the kubelet
    restarted).

    Raises:
        Refused: the credentials may not read it, the pod is gone, or the server fails for too long.
        Unreachable: the server does not answer for too long.
    """
    failing: float | None = None  # since this time
    last, count, heard = "", 0, time.monotonic()  # the newest stamp; lines with it; time of arrival
    options: dict[str, Any] = {} if tail is None else {"tail_lines": tail}
    read_again = False
    while True:
        passed, known = last, count
        options |= {"follow": True, "timestamps": True}
        try:
            for line in _read(client, namespace, pod, container, options):
                failing = None
                stamp, _, text = line.partition(" ")
                if not stamp[:1].isdigit():  # a message of the kubelet
                    yield line
                    continue
                if stamp < passed:
                    continue
                if stamp == passed and known:
                    known -= 1
                    continue
                passed = ""  # all later lines are new, even if two streams mix their order
                if stamp > last:
                    last, count = stamp, 0
                count += stamp == last
                heard = time.monotonic()
                yield text
            if ended():
                if last or read_again:
                    return
                read_again = True  # the container may have begun and ended after the request
                continue
        except Broken:
            if tail == 0 and not last:  # otherwise lines between the connections would be lost
                options = {"since_seconds": int(time.monotonic() - heard) + 1}
        except (Refused, Unreachable) as error:
            if isinstance(error, Refused) and error.status == 400:  # "is waiting to start"
                if not patient():
                    return
            else:
                failing = failing or time.monotonic()
                if not error.transient or time.monotonic() - failing > PATIENCE_SECONDS:
                    raise
        if last:
            options = {"since_seconds": _age(last, heard)}
        sleep(1.0)


def _age(stamp: str, heard: float) -> int:
    written = time.time() - dateutil.parse_rfc3339(stamp).timestamp()
    return int(max(written, time.monotonic() - heard) + _SLACK_SECONDS)


def merged(
    client: kubernetes.client.ApiClient,
    namespace: str,
    present: Callable[[], tuple[list[Pod], bool]],
    *,
    container: str,
    tail: int | None = None,
    on_refused: Callable[[Refused | Unreachable], Any] | None = None,
    linger: float = 10.0,
    every: float = 0.5,
    sleep: Callable[[float], Any] = time.sleep,
) -> Iterator[tuple[Pod, str]]:
    """Lines of several pods as they are written, each with its pod.

    Args:
        present: returns the existing pods, and whether more may start; called repeatedly.
        tail: last existing lines of each log; default: all.
        on_refused: called when a log cannot be read; default: raises the error.
        linger: seconds to read logs after the last pod has started.
        every: seconds between calls of ``present``.
    """
    written: queue.Queue[tuple[Pod, str] | Exception] = queue.Queue()
    readers: dict[str, threading.Thread] = {}
    alive: set[str] = set()
    more, deadline, rounds = True, math.inf, 0

    def ended(pod: Pod) -> bool:
        """Whether a listing that began after this call lacks the pod: its name may have another."""
        begun = rounds
        while more and rounds < begun + 2:
            time.sleep(0.02)
        return pod.uid not in alive

    def read(pod: Pod) -> None:
        try:
            for line in followed(
                client,
                namespace,
                pod.name,
                container=container,
                tail=tail,
                patient=lambda: more,
                ended=lambda: ended(pod),
            ):
                written.put((pod, line))
        except Refused as error:
            if error.status != 404:  # the pod was deleted
                written.put(error)
        except Exception as error:
            written.put(error)

    try:
        while True:
            if more:
                found, more = present()
                alive = {
                    pod.uid for pod in found if more and not pod.is_over and pod.exit_code is None
                }
                rounds += 1
                for pod in found:
                    if pod.uid not in readers:
                        readers[pod.uid] = threading.Thread(target=read, args=(pod,), daemon=True)
                        readers[pod.uid].start()
            if not more:
                deadline = min(deadline, time.monotonic() + linger)
            reading = any(reader.is_alive() for reader in readers.values())
            over = not more and (not reading or time.monotonic() > deadline)
            for _ in range(written.qsize()):  # only these: a pod that prints much must not block
                entry = written.get()
                if isinstance(entry, (Refused, Unreachable)) and on_refused is not None:
                    on_refused(entry)
                elif isinstance(entry, Exception):
                    raise entry
                else:
                    yield entry
            if over:
                return
            sleep(every if more else 0.1)
    finally:  # ends readers that wait for a pod
        more, alive = False, set()


class Broken(Exception):
    """An open connection closed before its end."""


def _read(
    client: kubernetes.client.ApiClient,
    namespace: str,
    pod: str,
    container: str,
    options: dict[str, Any],
) -> Iterator[str]:
    with explained(f"The log of pod {pod} in {namespace} cannot be read", REMEDY):
        response = kubernetes.client.CoreV1Api(client).read_namespaced_pod_log(
            pod,
            namespace,
            container=container,
            _request_timeout=(10, _SILENCE_SECONDS if "follow" in options else 30),
            _preload_content=False,
            **options,
        )
    rest = b""
    try:
        for part in response.stream():
            *whole, rest = (rest + part).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
        if rest:
            yield rest.decode(errors="replace")
    except urllib3.exceptions.HTTPError as error:
        raise Broken(str(error)) from None
    finally:
        response.close()
