"""What the server's refusals mean, in words; and what is wrong when it does not answer."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Mapping

import urllib3

from stagecraft.pipeline.kubeflow.client.connection import Connection
from stagecraft.schemas.errors import UserError

_ADVICE = {
    401: "No credentials that it takes: give --token-file, --cookies-file or --iap-client-id; "
    "tokens and cookies end after hours.",
    403: "These credentials may not do that{namespace}: ask who runs the cluster for a role there.",
    404: "",
    409: "",
    429: "It asks to come more slowly: try again in a minute.",
}

_FAILED = "The server failed: try again; if it stays so, look at the log of deployment/ml-pipeline."


class ApiError(UserError):
    """Kubeflow Pipelines refused, failed, or could not be reached."""

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status
        """Of HTTP; None: there was no answer."""

    @property
    def transient(self) -> bool:
        """Whether asking again may help."""
        return self.status is None or self.status == 429 or self.status >= 500


def refused(
    connection: Connection,
    url: str,
    status: int,
    body: str | bytes | None,
    headers: Mapping[str, str] | None = None,
) -> ApiError:
    """The error for an answer that is none of 200 to 299, to a request with these headers."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    # Before it is cut: no part of a secret is told, either.
    said = _said(connection.redact(text, headers))
    if status == 404 and not text.lstrip().startswith("{"):
        return ApiError(
            f"{_place(url)}: 404, and not from Kubeflow Pipelines 2: its address is often the "
            "cluster's with /pipeline at the end.",
            status,
        )
    advice = _FAILED if status >= 500 else _ADVICE.get(status, "")
    namespace = connection.context.namespace
    advice = advice.format(namespace=f" in namespace {namespace}" if namespace else "")
    message = f"{_place(url)}: {status}" + (f": {said}" if said else "")
    message = f"{message.rstrip('.')}. {advice}".strip()
    return ApiError(connection.redact(message, headers), status)


def no_api(url: str) -> ApiError:
    """The error for an answer that is a page for people."""
    return ApiError(
        f"{_place(url)}: answered with a web page. Either it wants a sign-in: give --cookies-file, "
        "--token-file or --iap-client-id. Or Kubeflow Pipelines is at another address, often the "
        "cluster's with /pipeline at the end.",
        401,
    )


def unreachable(connection: Connection, url: str, error: Exception) -> ApiError:
    """The error for no answer at all."""
    reason: object = error
    while getattr(reason, "reason", None):  # urllib3 wraps what happened
        reason = reason.reason  # type: ignore[attr-defined]
    place, text = _place(url), str(reason)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        advice = (
            "its certificate is not trusted: give the one that signed it by --ca-file, or "
            "--insecure to take any."
        )
    elif isinstance(reason, urllib3.exceptions.SSLError) or "SSL" in text:
        advice = f"no TLS connection ({_short(text)}): is it http:// that is served there?"
    elif isinstance(
        reason, urllib3.exceptions.NewConnectionError
    ):  # in urllib3 1, it is a timeout, too
        advice = (
            f"cannot be reached ({_short(text.rpartition(': ')[2])}). From outside a cluster: "
            "kubectl port-forward --namespace kubeflow service/ml-pipeline-ui 8080:80, and "
            "--endpoint http://localhost:8080."
        )
    elif isinstance(reason, urllib3.exceptions.TimeoutError):
        seconds = connection.context.timeout_seconds
        advice = (
            f"no answer within {seconds:g} s; give it longer by --timeout, or look at the network."
        )
    else:
        advice = f"the connection broke ({_short(text)}): try again."
    return ApiError(connection.redact(f"{place}: {advice}"))


def _place(url: str) -> str:
    """The address without a query and without credentials that somebody wrote into it."""
    parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    path = re.sub(r"/apis/v\dbeta1/.*", "", parts.path)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"


def _said(body: str) -> str:
    """The server's own words: of grpc-gateway, of the upload's handlers, or plain ones."""
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
