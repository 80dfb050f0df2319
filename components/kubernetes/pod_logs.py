"""Logs of pods, one after the other or of all of them as they come."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import kubernetes
import urllib3

from stagecraft.components.kubernetes.connection import Refused, Unreachable, explained

_REMEDY = (
    "manifests/base/logs-access.yaml of the project has a role that may list pods and get pods/log."
)

PATIENCE_SECONDS = 300.0
"""How long a followed log's server may fail or not answer before that is told as an error."""

_USUAL = (None, "ContainerCreating", "PodInitializing")
"""What a container waits for when nothing is wrong."""


class Pod(NamedTuple):
    """A pod, as much of it as its log needs."""

    name: str
    phase: str
    """Pending, Running, Succeeded, Failed or Unknown."""

    labels: dict[str, str]
    annotations: dict[str, str]
    created: str
    """RFC 3339: sorts as text."""

    waiting: str | None
    """Why a container has not begun, such as ImagePullBackOff."""

    exit_code: int | None
    """Of its container; None: it has not ended."""

    reason: str
    """Why the pod itself ended, such as Evicted."""

    @property
    def is_over(self) -> bool:
        """Whether no more will come."""
        return self.phase in ("Succeeded", "Failed")


def pods(client: kubernetes.client.ApiClient, namespace: str, selector: str) -> list[Pod]:
    """Pods with certain labels, in the order in which they were made.

    Raises:
        Refused: it is not allowed, or the server failed.
    """
    with explained(f"Pods of namespace {namespace} cannot be listed", _REMEDY):
        answer = kubernetes.client.CoreV1Api(client).list_namespaced_pod(
            namespace, label_selector=selector, _request_timeout=(10, 30)
        )
    found = [
        Pod(
            item.metadata.name,
            item.status.phase or "Unknown",
            item.metadata.labels or {},
            item.metadata.annotations or {},
            item.metadata.creation_timestamp.isoformat(),
            _waiting(item.status),
            _exit_code(item.status),
            ": ".join(part for part in (item.status.reason, item.status.message) if part),
        )
        for item in answer.items
    ]
    return sorted(found, key=lambda pod: (pod.created, pod.name))


def lines(
    client: kubernetes.client.ApiClient,
    namespace: str,
    pod: str,
    *,
    container: str,
    tail: int | None = None,
) -> Iterator[str]:
    """Lines of a container's log, as far as it goes now, without their ends.

    Raises:
        Refused: it is not allowed, the pod is gone, or its container has not begun (400).
    """
    yield from _read(
        client, namespace, pod, container, {} if tail is None else {"tail_lines": tail}
    )


def followed(
    client: kubernetes.client.ApiClient,
    namespace: str,
    pod: str,
    *,
    container: str,
    tail: int | None = None,
    patient: Callable[[], bool] = lambda: True,
    sleep: Callable[[float], Any] = time.sleep,
) -> Iterator[str]:
    """Lines of a container's log as they are written, until the container ends.

    Waits for a container that has not begun, as long as ``patient`` says. A connection that breaks
    (proxies close quiet ones) is taken up again where it was.

    Raises:
        Refused: it is not allowed, the pod is gone, or the server has failed for too long.
        Unreachable: there has been no answer for too long.
    """
    failing: float | None = None  # since when
    last, count, since = "", 0, time.monotonic()  # the last stamp; lines that have it; when
    options: dict[str, Any] = {} if tail is None else {"tail_lines": tail}
    while True:
        known, options = count, options | {"follow": True, "timestamps": True}
        try:
            for line in _read(client, namespace, pod, container, options):
                failing = None
                stamp, _, text = line.partition(" ")
                if stamp < last:
                    continue
                if stamp == last and known:
                    known -= 1
                    continue
                count = count + 1 if stamp == last else 1
                last, known, since = stamp, 0, time.monotonic()
                yield text
            return
        except Broken:
            pass
        except (Refused, Unreachable) as error:
            if isinstance(error, Refused) and error.status == 400:  # "is waiting to start"
                if not patient():
                    return
            else:
                failing = failing or time.monotonic()
                if not error.transient or time.monotonic() - failing > PATIENCE_SECONDS:
                    raise
        if last:
            options = {"since_seconds": int(time.monotonic() - since) + 2}
        sleep(1.0)


def merged(
    client: kubernetes.client.ApiClient,
    namespace: str,
    present: Callable[[], tuple[list[Pod], bool]],
    *,
    container: str,
    tail: int | None = None,
    on_refused: Callable[[Refused], Any] | None = None,
    linger: float = 10.0,
    every: float = 0.5,
    sleep: Callable[[float], Any] = time.sleep,
) -> Iterator[tuple[Pod, str]]:
    """Lines of several pods as they are written, each with its pod.

    Args:
        client: the connection.
        namespace: of the pods.
        present: the pods that there are now, and whether more may come; asked again and again.
        container: whose logs.
        tail: how many lines of what is written already, of each; default: all.
        on_refused: called when a log may not be read; default: that is raised.
        linger: seconds that logs may still go on when no more pods will come.
        every: seconds between looks.
        sleep: waits for seconds.

    Raises:
        UserError: logs cannot be read.
    """
    written: queue.Queue[tuple[Pod, str] | Exception] = queue.Queue()
    readers: dict[str, threading.Thread] = {}
    more, deadline = True, math.inf

    def read(pod: Pod) -> None:
        try:
            for line in followed(
                client, namespace, pod.name, container=container, tail=tail, patient=lambda: more
            ):
                written.put((pod, line))
        except Refused as error:
            if error.status != 404:  # deleted meanwhile
                written.put(error)
        except Exception as error:
            written.put(error)

    while True:
        if more:
            found, more = present()
            for pod in found:
                if pod.name not in readers:
                    readers[pod.name] = threading.Thread(target=read, args=(pod,), daemon=True)
                    readers[pod.name].start()
        if not more:
            deadline = min(deadline, time.monotonic() + linger)
        reading = any(reader.is_alive() for reader in readers.values())
        over = not more and (not reading or time.monotonic() > deadline)
        while not written.empty():
            entry = written.get()
            if isinstance(entry, Refused) and on_refused is not None:
                on_refused(entry)
            elif isinstance(entry, Exception):
                raise entry
            else:
                yield entry
        if over:
            return
        sleep(every if more else 0.1)


class Broken(Exception):
    """A connection that was open closed without an end."""


def _read(
    client: kubernetes.client.ApiClient,
    namespace: str,
    pod: str,
    container: str,
    options: dict[str, Any],
) -> Iterator[str]:
    with explained(f"The log of pod {pod} in {namespace} cannot be read", _REMEDY):
        response = kubernetes.client.CoreV1Api(client).read_namespaced_pod_log(
            pod,
            namespace,
            container=container,
            # A follower waits as long as nothing is written.
            _request_timeout=(10, None if "follow" in options else 30),
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


def _waiting(status: Any) -> str | None:
    """Why a container waits, but for the usual ContainerCreating."""
    for container in status.container_statuses or ():
        waiting = container.state.waiting if container.state else None
        if waiting is not None and waiting.reason not in _USUAL:
            return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
    return None


def _exit_code(status: Any) -> int | None:
    for container in status.container_statuses or ():
        ended = container.state.terminated if container.state else None
        if ended is not None:
            return int(ended.exit_code)
    return None
