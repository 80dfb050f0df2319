"""Objects of any kind in a namespace, as the dictionaries that their YAML shows."""

from __future__ import annotations

import datetime
from typing import Any

import kubernetes

from stagecraft.components.kubernetes.api.connection import Refused, call, explained, parse_time

Json = dict[str, Any]

_REMEDY = (
    "The service account of the step needs this permission: apply "
    "manifests/base/training-access.yaml, which grants it."
)


class Objects:
    """The objects of one namespace."""

    def __init__(self, client: kubernetes.client.ApiClient, namespace: str):
        self._client = client
        self._namespace = namespace

    def create(self, body: Json) -> Json:
        """Creates an object; Refused with 409 where it exists."""
        return self._call("POST", "create", body, self._collection(body), body)

    def get(self, body: Json) -> Json | None:
        """The object of this kind and name; None: it does not exist."""
        try:
            return self._call("GET", "get", body, self._path(body))
        except Refused as error:
            if error.status != 404:
                raise
            return None

    def patch(self, body: Json, change: Json) -> Json:
        """Changes fields of an object (JSON merge patch, RFC 7396)."""
        return self._call("PATCH", "patch", body, self._path(body), change)

    def replace(self, body: Json) -> Json:
        """Writes an object; Refused with 409 if its ``resourceVersion`` is another one now."""
        return self._call("PUT", "update", body, self._path(body), body)

    def delete(self, body: Json, uid: str | None = None, version: str | None = None) -> None:
        """Deletes an object, if it exists (of this uid and version), and later what it owns."""
        options: Json = {"propagationPolicy": "Background"}
        expected = {"uid": uid, "resourceVersion": version}
        if any(expected.values()):
            options["preconditions"] = {key: value for key, value in expected.items() if value}
        try:
            self._call("DELETE", "delete", body, self._path(body), options)
        except Refused as error:
            if error.status not in (404, 409):
                raise

    def warnings(self, name: str, since: datetime.datetime) -> list[tuple[str, str]]:
        """Kind and name, and message of Warnings about objects whose names begin with ``name``."""
        with explained(f"Events of namespace {self._namespace} cannot be listed", _REMEDY):
            path = f"/api/v1/namespaces/{self._namespace}/events"
            events = call(self._client, "GET", path, fieldSelector="type=Warning")["items"]
        return [
            (
                f"{about.get('kind')} {about['name']}",
                ": ".join(filter(None, (event.get("reason"), event.get("message")))),
            )
            for event in events
            if (about := event["involvedObject"]).get("name", "").startswith(name)
            and parse_time(
                event.get("lastTimestamp")
                or event.get("eventTime")
                or event["metadata"]["creationTimestamp"]
            )
            >= since
        ]

    def _call(self, method: str, verb: str, of: Json, path: str, body: Json | None = None) -> Json:
        patch = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        problem = (
            f"{of['kind']} {of['metadata']['name']}: cannot {verb} this object in namespace "
            f"{self._namespace}"
        )
        with explained(problem, _REMEDY):
            return call(self._client, method, path, body, headers=patch)

    def _path(self, body: Json) -> str:
        return f"{self._collection(body)}/{body['metadata']['name']}"

    def _collection(self, body: Json) -> str:
        version = body["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return f"{root}/namespaces/{self._namespace}/{body['kind'].lower()}s"
