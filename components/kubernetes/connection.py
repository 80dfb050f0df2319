"""A connection to a cluster's API, and what its refusals mean."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator

import kubernetes
import urllib3
from kubernetes.client import ApiException
from kubernetes.config import ConfigException

from stagecraft.schemas.errors import UserError


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
        advice = f" {remedy}" if remedy and error.status in (401, 403) else ""
        raise Refused(f"{what}: {said(error)}.{advice}", error.status) from None
    except urllib3.exceptions.HTTPError as error:
        reason = getattr(error, "reason", None) or error
        raise Unreachable(f"{what}: the cluster's API does not answer ({reason}).") from None


def said(error: ApiException) -> str:
    """The server's own words: the message of its ``Status``."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        message: str = json.loads(body or "")["message"]
        return message.rstrip(".")
    return f"{error.status} {error.reason or ''}".strip()
