"""Reads a cluster's API by paths, for checks that change nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import kubernetes

from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.api.connection import Refused

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    name: str
    found: str
    verdict: str = "ok"  # ``ok``; ``note``: a training may run; ``missing``: a training cannot run
    advice: str = ""  # what to apply or to set


class Reader:
    """Reads one cluster's API."""

    def __init__(self, client: kubernetes.client.ApiClient):
        self._client = client

    @property
    def host(self) -> str:
        """Address of the API server."""
        return str(self._client.configuration.host)

    def get(self, path: str) -> Json | None:
        """The object or list at a path; None: it does not exist."""
        try:
            return self._call("GET", path)
        except Refused as error:
            if error.status != 404:
                raise
            return None

    def items(self, path: str) -> list[Json]:
        """The objects of a list; errors as of :meth:`get`."""
        return list((self.get(path) or {}).get("items") or ())

    def post(self, path: str, body: Json, headers: Mapping[str, str] | None = None) -> Json:
        """Creates an object that is a question; errors as of :meth:`get`, also for 404."""
        return self._call("POST", path, body, headers)

    def _call(self, method: str, path: str, body: Json | None = None, headers: Any = None) -> Json:
        try:
            with connection.explained(f"Kubernetes at {self.host}"):
                return connection.call(self._client, method, path, body, headers=headers)
        except Refused as error:
            if error.status != 401:
                raise
            advice = "The credentials are not valid, or have expired: log in again"
            raise Refused(f"{error} {advice}.", 401) from None


def as_allowed(name: str, check: Iterator[CheckResult]) -> Iterator[CheckResult]:
    """Results of a check; a check that the credentials do not allow is a note."""
    try:
        yield from check
    except Refused as error:
        if error.status != 403:
            raise
        words = str(error).rstrip(".")
        advice = "ask someone with more permissions, such as an administrator of the namespace"
        yield CheckResult(name, f"these credentials may not read it ({words})", "note", advice)
