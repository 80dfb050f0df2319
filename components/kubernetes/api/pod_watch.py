"""The last state of each pod, also of pods that a controller deleted as soon as they ended."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import kubernetes
import urllib3
from kubernetes.client import ApiException

from stagecraft.components.kubernetes.api.pod_status import Json, Pod, pod_of

_TERM_SECONDS = 240
"""How long one request watches. The server closes longer ones after five minutes or more."""


class PodWatch:
    """Watches the pods with certain labels, in a thread.

    Kubeflow's training operator deletes a failed pod 0.04 to 0.2 s after its end; a client that
    lists pods every few seconds misses how the pod ended. The watch serves people only: without
    the permission, or while the connection is broken, nothing is known of deleted pods.
    https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
    """

    def __init__(self, client: kubernetes.client.ApiClient, namespace: str, selector: str):
        self._client, self._namespace, self._selector = client, namespace, selector
        self._lock = threading.Lock()
        self._last: dict[str, Pod] = {}
        self._ending: dict[str, None] = {}  # uids, in the order in which the deletions were seen
        self._over = threading.Event()
        self.refused = False  # whether the credentials do not allow it

    def start(self) -> PodWatch:
        """Starts the thread, which ends with the process."""
        threading.Thread(target=self._run, name="pods", daemon=True).start()
        return self

    def close(self) -> None:
        """Ends the thread, at the latest with its present request."""
        self._over.set()

    def seen(self) -> list[Pod]:
        """The last state of all pods since the start, the oldest first."""
        with self._lock:
            return sorted(self._last.values(), key=lambda pod: (pod.created, pod.name))

    def deleted(self) -> list[str]:
        """The uids of deleted pods, in the order of their deletions."""
        with self._lock:
            return list(self._ending)

    def observe(self, pod: Pod) -> None:
        """Takes over a state."""
        with self._lock:
            self._last[pod.uid] = pod
            if pod.deleted:
                self._ending.setdefault(pod.uid)

    def _run(self) -> None:
        version = ""
        while not self._over.is_set():
            try:
                for event in self._events(version):
                    if event["type"] == "ERROR":  # 410: the server lacks changes since the version
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    self.observe(pod_of(event["object"]))
            except ApiException as error:
                if error.status in (401, 403):
                    self.refused = True
                    return
                version = ""
            except (urllib3.exceptions.HTTPError, OSError, ValueError):  # the connection broke
                pass
            self._over.wait(1.0)

    def _events(self, version: str) -> Iterator[Json]:
        response = kubernetes.client.CoreV1Api(self._client).list_namespaced_pod(
            self._namespace,
            label_selector=self._selector,
            watch=True,
            timeout_seconds=_TERM_SECONDS,
            _request_timeout=(10, _TERM_SECONDS + 30),
            _preload_content=False,
            **({"resource_version": version} if version else {}),
        )
        rest = b""
        try:
            for part in response.stream():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if self._over.is_set():
                        return
                    yield json.loads(line)
        finally:
            response.close()
