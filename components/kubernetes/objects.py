"""Objects of any kind on a cluster, as the dictionaries that their YAML shows."""

from __future__ import annotations

from typing import Any

import kubernetes

from stagecraft.components.kubernetes.connection import Refused, explained

Json = dict[str, Any]

_PLURALS = {"Job": "jobs", "Service": "services", "TFJob": "tfjobs", "TrainJob": "trainjobs"}

_REMEDY = (
    "The step's service account needs that permission: manifests/base/training-access.yaml of the "
    "project has a role with all of them."
)

_TIMEOUT = (10, 30)


class Objects:
    """Those of one namespace."""

    def __init__(self, client: kubernetes.client.ApiClient, namespace: str):
        """Nothing is asked yet."""
        self._client = client
        self._namespace = namespace

    def create(self, body: Json) -> Json:
        """Creates an object.

        Raises:
            Refused: 409 where it is there already.
            UserError: the server cannot be reached.
        """
        return self._call("POST", "create", body, self._collection(body), body)

    def get(self, body: Json) -> Json | None:
        """The object of that kind and name; None if there is none."""
        try:
            return self._call("GET", "get", body, self._path(body))
        except Refused as error:
            if error.status != 404:
                raise
            return None

    def patch(self, body: Json, change: Json) -> Json:
        """Changes fields of an object (JSON merge patch, RFC 7396)."""
        return self._call("PATCH", "patch", body, self._path(body), change)

    def delete(self, body: Json) -> None:
        """Deletes an object and, in the background, what it owns; one that is gone is gone."""
        try:
            options = {"propagationPolicy": "Background"}
            self._call("DELETE", "delete", body, self._path(body), options)
        except Refused as error:
            if error.status != 404:
                raise

    def _call(self, method: str, verb: str, of: Json, path: str, body: Json | None = None) -> Json:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        kind, name = of["kind"], of["metadata"]["name"]
        what = f"{kind} {name}: cannot {verb} it in namespace {self._namespace}"
        with explained(what, _REMEDY):
            answer: Json = self._client.call_api(
                path,
                method,
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                response_type="object",
                _return_http_data_only=True,
                _request_timeout=_TIMEOUT,
            )
        return answer

    def _path(self, body: Json) -> str:
        return f"{self._collection(body)}/{body['metadata']['name']}"

    def _collection(self, body: Json) -> str:
        version = body["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return f"{root}/namespaces/{self._namespace}/{_PLURALS[body['kind']]}"
