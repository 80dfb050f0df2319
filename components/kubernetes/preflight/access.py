"""What the Trainer's step may do, in Kubernetes' own words: its access reviews.

https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stagecraft.components.kubernetes.api.connection import Refused
from stagecraft.components.kubernetes.api.reading import Json, Reading, Row

_REVIEWS = "/apis/authorization.k8s.io/v1"

_ROLE = "manifests/base/training-access.yaml"


class Permission(NamedTuple):
    """What a step does with a kind of object."""

    group: str
    resource: str
    """Plural, with a subresource as ``pods/log``."""

    verbs: tuple[str, ...]
    without: str = ""
    """What is missing without it, where the training goes on."""


_JOBS = {
    "job": ("batch", "jobs"),
    "tfjob": ("kubeflow.org", "tfjobs"),
    "trainjob": ("trainer.kubeflow.org", "trainjobs"),
}


def needed(kind: str) -> list[Permission]:
    """By ``kubeflow.job.kind``: what ``Training`` and ``ClusterLease`` ask the API for."""
    group, plural = _JOBS[kind]
    found = [Permission(group, plural, ("create", "get", "patch", "delete"))]
    if kind == "job":
        found.append(Permission("", "services", ("create", "get", "delete")))
    return [
        *found,
        Permission("coordination.k8s.io", "leases", ("create", "get", "update", "delete")),
        Permission("", "pods", ("list",)),
        Permission("", "pods/log", ("get",), "the step's log lacks what the pods print"),
        Permission("", "events", ("list",), "the step does not say why a pod is not scheduled"),
    ]


def rows(reading: Reading, namespace: str, kind: str, account: str | None) -> Iterator[Row]:
    """Who was asked about, and a row for each kind of object.

    Args:
        reading: the cluster.
        namespace: of the job.
        kind: ``kubeflow.job.kind``.
        account: name of the service account in the namespace; None: whoever asks.

    Raises:
        Refused: nobody may ask.
    """
    review = _Review(reading, namespace, account)
    who = f"service account {account}" if account else "you"
    answers = [
        (each, [verb for verb in each.verbs if not review.allowed(each, verb)])
        for each in needed(kind)
    ]
    yield _asked_about(account, review.how)
    for permission, denied in answers:
        name, verbs = permission.resource, ", ".join(permission.verbs)
        if not denied:
            yield Row(name, f"{verbs}: {who} may")
            continue
        bound = account or "whoever the Trainer's step runs as"
        advice = f"apply {_ROLE}, with {bound} in its RoleBinding"
        if permission.without:
            advice = f"without it, {permission.without}; {advice}"
        verdict = "note" if permission.without else "missing"
        yield Row(name, f"{', '.join(denied)}: {who} may not", verdict, advice)


def _asked_about(account: str | None, how: str) -> Row:
    if account:
        return Row("permissions", f"of service account {account}, {how}")
    advice = (
        "steps run as another: --service-account pipeline-runner, or default-editor in a profile"
    )
    return Row("permissions", "your own", "note", advice)


class _Review:
    """Asks about one subject, by the first way that is allowed."""

    def __init__(self, reading: Reading, namespace: str, account: str | None):
        self._reading, self._namespace, self._account = reading, namespace, account
        self._impersonates = False

    @property
    def how(self) -> str:
        return "by impersonation" if self._impersonates else "by an access review"

    def allowed(self, permission: Permission, verb: str) -> bool:
        resource, _, sub = permission.resource.partition("/")
        asked: Json = {
            "namespace": self._namespace,
            "verb": verb,
            "group": permission.group,
            "resource": resource,
            **({"subresource": sub} if sub else {}),
        }
        if self._account and not self._impersonates:
            try:
                return self._about_another(asked)
            except Refused as error:
                if error.status != 403:
                    raise
                self._impersonates = True
        # Kubernetes adds the groups of a service account by itself.
        headers = {"Impersonate-User": self._user} if self._account else {}
        return self._ask("SelfSubjectAccessReview", "", {}, asked, headers)

    def _about_another(self, asked: Json) -> bool:
        """In the namespace, where its administrators may ask; not for the whole cluster."""
        who = {
            "user": self._user,
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{self._namespace}",
                "system:authenticated",
            ],
        }
        place = f"/namespaces/{self._namespace}"
        return self._ask("LocalSubjectAccessReview", place, who, asked, {})

    def _ask(self, kind: str, place: str, who: Json, asked: Json, headers: dict[str, str]) -> bool:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"namespace": self._namespace} if place else {},
            "spec": {**who, "resourceAttributes": asked},
        }
        path = f"{_REVIEWS}{place}/{kind.lower()}s"
        answer = self._reading.post(path, body, headers)
        return bool(answer.get("status", {}).get("allowed"))

    @property
    def _user(self) -> str:
        return f"system:serviceaccount:{self._namespace}:{self._account}"
