"""Objects of any kind on a cluster, as the dictionaries that their YAML shows."""

from __future__ import annotations

import datetime
from typing import Any

import kubernetes
from kubernetes.config import dateutil

from stagecraft.components.kubernetes.api.connection import Refused, explained, get
from stagecraft.schemas.errors import UserError

Json = dict[str, Any]

_PLURALS = {
    "Job": "jobs",
    "Lease": "leases",
    "Service": "services",
    "TFJob": "tfjobs",
    "TrainJob": "trainjobs",
}

_REMEDY = (
    "The step's service account needs that permission: manifests/base/training-access.yaml of the "
    "project has a role with all of them."
)

_OPERATORS = {"TFJob": "Kubeflow's Training Operator 1.x", "TrainJob": "Kubeflow Trainer 2.x"}

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
            UserError: the server cannot be reached, or does not know the kind.
        """
        kind = body["kind"]
        try:
            return self._call("POST", "create", body, self._collection(body), body)
        except Refused as error:
            if error.status != 404 or kind not in _OPERATORS or "namespaces" in str(error):
                raise
            raise UserError(
                f"{kind} {body['metadata']['name']}: the cluster knows no {kind} "
                f"({body['apiVersion']}); install {_OPERATORS[kind]}, or use kubeflow.job.kind: job"
            ) from None

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

    def replace(self, body: Json) -> Json:
        """Writes an object whose ``resourceVersion`` is still the body's.

        Raises:
            Refused: 409 where it has another one by now, 404 where it is not there.
        """
        return self._call("PUT", "update", body, self._path(body), body)

    def delete(self, body: Json, uid: str | None = None, version: str | None = None) -> None:
        """Deletes an object and, in the background, what it owns; one that is gone is gone.

        Args:
            body: its kind and name.
            uid: of that one alone, and no other that has its name by now.
            version: its ``resourceVersion``; one that was changed since stays.
        """
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
        """Events of type Warning about what is called ``name``, or that and more, such as its pods.

        Args:
            name: that names begin with.
            since: none from before.

        Returns:
            Kind and name, and what is said.
        """
        with explained(f"Events of namespace {self._namespace} cannot be listed", _REMEDY):
            path = f"/api/v1/namespaces/{self._namespace}/events"
            found = get(self._client, path, fieldSelector="type=Warning")["items"]
        return [
            (f"{about.get('kind')} {about['name']}", _said(event))
            for event in found
            if (about := event["involvedObject"]).get("name", "").startswith(name)
            and _time(event) >= since
        ]

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


def created(of: Json) -> datetime.datetime:
    """When an object was created, by the server's clock, in whole seconds."""
    found: datetime.datetime = dateutil.parse_rfc3339(of["metadata"]["creationTimestamp"])
    return found


def _time(event: Json) -> datetime.datetime:
    last = event.get("lastTimestamp") or event.get("eventTime")
    return dateutil.parse_rfc3339(last) if last else created(event)


def _said(event: Json) -> str:
    """Both fields are optional."""
    return ": ".join(filter(None, (event.get("reason"), event.get("message"))))
