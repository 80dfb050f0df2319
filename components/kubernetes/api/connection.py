"""A connection to a cluster's API, with errors in words."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import kubernetes
import urllib3
from kubernetes.client import ApiException
from kubernetes.config import ConfigException, dateutil

from stagecraft.common.errors import UserError

_log = logging.getLogger(__name__)


class Refused(UserError):
    """The API server answered with an HTTP error."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status

    @property
    def transient(self) -> bool:
        """Whether a retry may help."""
        return self.status == 429 or self.status >= 500


class Unreachable(UserError):
    """The API server does not answer."""

    transient = True


PATIENCE_SECONDS = 300.0  # how long the API may fail or not answer
Answer = TypeVar("Answer")


def patiently(
    question: Callable[[], Answer],
    sleep: Callable[[float], Any] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Answer:
    """The cluster's answer; retries while its API fails or cannot be reached."""
    begun, pause = monotonic(), 1.0
    while True:
        try:
            return question()
        except (Refused, Unreachable) as error:
            if not error.transient or monotonic() - begun > PATIENCE_SECONDS:
                raise
            _log.warning("%s Trying again.", error)
        sleep(pause)
        pause = min(2 * pause, 15.0)


def connect(context: str | None = None) -> kubernetes.client.ApiClient:
    """Connects: in a pod with its service account, elsewhere as kubectl does, to ``context``."""
    configuration = kubernetes.client.Configuration()
    configuration.retries = False
    try:
        if context is None:
            with contextlib.suppress(ConfigException):
                kubernetes.config.load_incluster_config(client_configuration=configuration)
                return kubernetes.client.ApiClient(configuration)
        # The client reads the variable when it is imported, and never again.
        file = os.environ.get("KUBECONFIG") or None
        kubernetes.config.load_kube_config(file, context, client_configuration=configuration)
    except Exception as error:  # the loader raises many types for a malformed file
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            "No Kubernetes cluster: this process does not run in a pod, and kubectl's "
            f"configuration cannot be used ({reason}). Set KUBECONFIG, or try 'kubectl config "
            "get-contexts'."
        ) from None
    return kubernetes.client.ApiClient(configuration)


def call(
    client: kubernetes.client.ApiClient,
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    **query: str,
) -> dict[str, Any]:
    """Sends a request; the answer as its YAML shows it. For its errors, see :func:`explained`."""
    answer: dict[str, Any] = client.call_api(
        path,
        method,
        query_params=list(query.items()),
        header_params={
            "Accept": "application/json",
            "Content-Type": "application/json",
            **(headers or {}),
        },
        body=body,
        auth_settings=["BearerToken"],
        response_type="object",
        _return_http_data_only=True,
        _request_timeout=(10, 30),
    )
    return answer


def version(client: kubernetes.client.ApiClient) -> tuple[int, int]:
    """Major and minor version of the API server."""
    with explained("The version of the cluster cannot be read"):
        answer = call(client, "GET", "/version")
    try:  # some clusters report 31+
        return int(answer["major"]), int("".join(filter(str.isdigit, answer["minor"])))
    except (KeyError, TypeError, ValueError):
        raise UserError(f"The cluster does not report its version: {answer!r:.200}.") from None


@contextlib.contextmanager
def explained(problem: str, remedy: str = "") -> Iterator[None]:
    """Turns the client's errors in the block into sentences; ``remedy`` is added to 401 and 403."""
    try:
        yield
    except ApiException as error:
        words = _message(error)
        if not error.status:  # the client's error, of TLS
            raise Unreachable(f"{problem}: {words}.") from None
        # Quotas and admission hooks answer with 403, too; no role helps.
        denied = error.status == 401 or (error.status == 403 and " cannot " in words)
        advice = f" {remedy}" if remedy and denied else ""
        raise Refused(f"{problem}: {words}.{advice}", error.status) from None
    except urllib3.exceptions.HTTPError as error:
        reason = str(getattr(error, "reason", None) or error)
        reason = reason.partition(">: ")[2] or reason  # without the connection's name
        raise Unreachable(f"{problem}: the cluster's API does not answer ({reason}).") from None


def parse_time(text: str) -> datetime.datetime:
    """A time of the API (RFC 3339)."""
    result: datetime.datetime = dateutil.parse_rfc3339(text)
    return result


def _message(error: ApiException) -> str:
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        message: str = json.loads(body or "")["message"]
        return message.rstrip(".")
    return " ".join(f"{error.status or ''} {error.reason or ''}".split())
