"""Errors of Kubeflow Pipelines' API, with advice."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Mapping

import urllib3

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow.client.connection import Connection

_ADVICE = {
    401: "The server does not accept these credentials: set --token-file, --cookies-file or "
    "--iap-client-id; tokens and cookies expire after some hours.",
    403: "These credentials do not permit this request{namespace}. Ask an administrator for a "
    "role.",
    404: "",
    409: "",
    429: "The server limits requests: try again in a minute.",
}

_FAILED = "The server failed: try again; if it fails again, read the log of deployment/ml-pipeline."


class ApiError(UserError):
    """Kubeflow Pipelines refused a request, failed, or could not be reached."""

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status
        """HTTP status; None: the server did not answer."""

    @property
    def transient(self) -> bool:
        """Whether a retry may help."""
        return self.status is None or self.status == 429 or self.status >= 500


class NotFoundError(ApiError):
    """Kubeflow Pipelines does not have the object, or does not answer at the address."""


def refused(
    connection: Connection,
    url: str,
    status: int,
    body: str | bytes | None,
    headers: Mapping[str, str] | None = None,
) -> ApiError:
    """The error for an answer with a status outside 200 to 299.

    Args:
        headers: of the request.
    """
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    # Redact before _message cuts the text: a part of a secret would not be recognized.
    message = _message(connection.redact(text, headers))
    kind = NotFoundError if status == 404 else ApiError
    if status == 404 and not text.lstrip().startswith("{"):
        return kind(
            f"{_address(url)}: 404. Kubeflow Pipelines 2 does not answer at this address. Check "
            "the address: it often ends with /pipeline.",
            status,
        )
    advice = _FAILED if status >= 500 else _ADVICE.get(status, "")
    namespace = connection.context.namespace
    advice = advice.format(namespace=f" (in namespace {namespace})" if namespace else "")
    text = f"{_address(url)}: {status}" + (f": {message}" if message else "")
    text = f"{text.rstrip('.')}. {advice}".strip()
    return kind(connection.redact(text, headers), status)


def no_api(url: str) -> ApiError:
    """The error for an answer that is a web page."""
    return ApiError(
        f"{_address(url)} answered with a web page. If it requires a sign-in, set --cookies-file, "
        "--token-file or --iap-client-id. If the address is wrong, correct it: the address of "
        "Kubeflow Pipelines often ends with /pipeline.",
        401,
    )


def unreachable(connection: Connection, url: str, error: Exception) -> ApiError:
    """The error for a missing answer."""
    reason: object = error
    while getattr(reason, "reason", None):  # urllib3 wraps the cause
        reason = reason.reason  # type: ignore[attr-defined]
    text = str(reason)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        advice = (
            "its certificate is not trusted: set the signing certificate with --ca-file, or "
            "accept any certificate with --insecure."
        )
    elif isinstance(reason, urllib3.exceptions.SSLError) or "SSL" in text:
        advice = f"no TLS connection ({_short(text)}): the server may use http://."
    # Before TimeoutError: in urllib3 1, it is a subclass.
    elif isinstance(reason, urllib3.exceptions.NewConnectionError):
        advice = (
            f"cannot be reached ({_short(text.rpartition(': ')[2])}). From outside a cluster: "
            "kubectl port-forward --namespace kubeflow service/ml-pipeline-ui 8080:80, and "
            "--endpoint http://localhost:8080."
        )
    elif isinstance(reason, urllib3.exceptions.TimeoutError):
        seconds = connection.context.timeout_seconds
        advice = f"no answer within {seconds:g} s; raise --timeout, or check the network."
    else:
        advice = f"the connection broke ({_short(text)}): try again."
    return ApiError(connection.redact(f"{_address(url)}: {advice}"))


def _address(url: str) -> str:
    """The URL without path of the API, query and credentials."""
    parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    path = re.sub(r"/apis/v\dbeta1/.*", "", parts.path)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"


def _message(body: str) -> str:
    """The server's message, from grpc-gateway, the upload handlers, or plain text."""
    try:
        answer = json.loads(body)
    except ValueError:
        return "" if "<html" in body.lower() else _short(body)
    if not isinstance(answer, dict):
        return ""
    for key in ("message", "error_message", "error_details", "error"):
        if isinstance(answer.get(key), str) and answer[key]:
            return _short(answer[key])
    return ""


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 600 else text[:600] + " …"
