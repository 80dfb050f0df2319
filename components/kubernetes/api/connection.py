"""A connection to a cluster's API, and what its refusals mean."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import kubernetes
import urllib3
from kubernetes.client import ApiException
from kubernetes.config import ConfigException

from stagecraft.schemas.errors import UserError

_log = logging.getLogger(__name__)


class Refused(UserError):
    """The API server refused or failed."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status

    @property
    def transient(self) -> bool:
        """Whether asking again may help."""
        return self.status == 429 or self.status >= 500


class Unreachable(UserError):
    """The API server does not answer."""

    transient = True


PATIENCE_SECONDS = 300.0
"""How long the cluster's API may fail or not answer."""

Answer = TypeVar("Answer")


def patiently(
    question: Callable[[], Answer],
    sleep: Callable[[float], Any] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Answer:
    """What the cluster answers, asked again while its API fails or cannot be reached."""
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
    """Connects: from inside a pod with its service account, else as kubectl would.

    Args:
        context: of kubectl's configuration; default: in the cluster, else the current one.

    Raises:
        UserError: there is no cluster to connect to.
    """
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
    except Exception as error:  # the loader fails in many ways at a file that is none of kubectl's
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"No Kubernetes cluster: this is no pod, and kubectl's configuration is of no use "
            f"({reason}). Set KUBECONFIG, or try 'kubectl config get-contexts'."
        ) from None
    return kubernetes.client.ApiClient(configuration)


def get(client: kubernetes.client.ApiClient, path: str, **query: str) -> dict[str, Any]:
    """What is at a path, as its YAML would show it.

    Raises:
        ApiException: or an error of urllib3, see :func:`explained`.
    """
    answer: dict[str, Any] = client.call_api(
        path,
        "GET",
        query_params=list(query.items()),
        header_params={"Accept": "application/json"},
        auth_settings=["BearerToken"],
        response_type="object",
        _return_http_data_only=True,
        _request_timeout=(10, 30),
    )
    return answer


def version(client: kubernetes.client.ApiClient) -> tuple[int, int]:
    """Of the API server: major and minor.

    Raises:
        UserError: it does not say.
    """
    with explained("The version of the cluster cannot be asked"):
        found = get(client, "/version")
    try:  # some say 31+
        return int(found["major"]), int("".join(filter(str.isdigit, found["minor"])))
    except (KeyError, TypeError, ValueError):
        raise UserError(f"The cluster does not say its version: {found!r:.200}.") from None


@contextlib.contextmanager
def explained(what: str, remedy: str = "") -> Iterator[None]:
    """Puts failures of calls in the block into words.

    Args:
        what: that failed, as "Pods of namespace kubeflow cannot be listed".
        remedy: for 401 and 403, what gives the permission.

    Raises:
        Refused: instead of the client's own error.
        Unreachable: there is no answer.
    """
    try:
        yield
    except ApiException as error:
        words = said(error)
        if not error.status:  # the client's own, of TLS
            raise Unreachable(f"{what}: {words}.") from None
        # Quotas and admission hooks answer with 403, too, and no role helps against them.
        denied = error.status == 401 or (error.status == 403 and " cannot " in words)
        advice = f" {remedy}" if remedy and denied else ""
        raise Refused(f"{what}: {words}.{advice}", error.status) from None
    except urllib3.exceptions.HTTPError as error:
        reason = str(getattr(error, "reason", None) or error)
        reason = reason.partition(">: ")[2] or reason  # without the connection's own name
        raise Unreachable(f"{what}: the cluster's API does not answer ({reason}).") from None


def said(error: ApiException) -> str:
    """The server's own words: the message of its ``Status``."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        message: str = json.loads(body or "")["message"]
        return message.rstrip(".")
    return " ".join(f"{error.status or ''} {error.reason or ''}".split())
