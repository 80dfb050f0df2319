"""Reads a cluster's API by its paths: what is there, and what somebody may do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import kubernetes

from stagecraft.components.kubernetes.api.connection import Refused, explained

Json = dict[str, Any]

_TIMEOUT = (10, 30)


@dataclasses.dataclass(frozen=True)
class Row:
    """One thing that was looked at."""

    name: str
    found: str
    verdict: str = "ok"
    """``ok``; ``note``, which need not stop a training; ``missing``, which it needs."""

    advice: str = ""
    """What to apply or to set."""


class Reading:
    """One cluster's API."""

    def __init__(self, client: kubernetes.client.ApiClient):
        """Nothing is asked yet."""
        self._client = client

    @property
    def host(self) -> str:
        """Address of the API server."""
        return str(self._client.configuration.host)

    def get(self, path: str) -> Json | None:
        """What is at a path; None if there is nothing.

        Raises:
            Refused: it may not be read, or the server failed.
            Unreachable: there is no answer.
        """
        try:
            return self._call("GET", path)
        except Refused as error:
            if error.status != 404:
                raise
            return None

    def items(self, path: str) -> list[Json]:
        """The objects of a list; raises as :meth:`get`."""
        return list((self.get(path) or {}).get("items") or ())

    def post(self, path: str, body: Json, headers: Mapping[str, str] | None = None) -> Json:
        """Asks a question that is an object; raises as :meth:`get`, also for 404."""
        return self._call("POST", path, body, headers)

    def _call(self, method: str, path: str, body: Json | None = None, headers: Any = None) -> Json:
        said = {"Accept": "application/json", "Content-Type": "application/json"}
        try:
            with explained(f"Kubernetes at {self.host}"):
                answer: Json = self._client.call_api(
                    path,
                    method,
                    header_params=said | dict(headers or {}),
                    body=body,
                    auth_settings=["BearerToken"],
                    response_type="object",
                    _return_http_data_only=True,
                    _request_timeout=_TIMEOUT,
                )
        except Refused as error:
            if error.status != 401:
                raise
            advice = "The credentials are not valid, or no longer: log in again"
            raise Refused(f"{error} {advice}.", 401) from None
        return answer


def as_allowed(name: str, look: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """Rows of a look; what may not be looked at is a note."""
    try:
        yield from look()
    except Refused as error:
        if error.status != 403:
            raise
        words = str(error).rstrip(".")
        advice = "somebody who may has to look, such as an administrator of the namespace"
        yield Row(name, f"may not be looked at with these credentials ({words})", "note", advice)
