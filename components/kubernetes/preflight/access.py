"""Checks the permissions of the Trainer's step with Kubernetes' access reviews.

https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from __future__ import annotations

from collections.abc import Iterator

from stagecraft.components.kubernetes.api.connection import Refused
from stagecraft.components.kubernetes.api.reader import CheckResult, Json, Reader
from stagecraft.components.kubernetes.jobs.cluster_job import ClusterJob, Permission

_REVIEWS = "/apis/authorization.k8s.io/v1"

_ROLE = "manifests/base/training-access.yaml"


def needed(kind: ClusterJob) -> list[Permission]:
    """Permissions that ``TrainingJob`` and ``ClusterLease`` need."""
    return [
        *kind.permissions(),
        Permission("coordination.k8s.io", "leases", ("create", "get", "update", "delete")),
        Permission("", "pods", ("list",)),
        Permission("", "pods", ("watch",), "the step does not say how a deleted pod ended"),
        Permission("", "pods/log", ("get",), "the step's log lacks what the pods print"),
        Permission("", "events", ("list",), "the step does not say why a pod is not scheduled"),
    ]


def check(
    reader: Reader, namespace: str, kind: ClusterJob, account: str | None
) -> Iterator[CheckResult]:
    """A result for the subject (``account`` None: the user), and one for each permission."""
    review = _Review(reader, namespace, account)
    who = f"service account {account}" if account else "you"
    answers = [
        (each, [verb for verb in each.verbs if not review.allowed(each, verb)])
        for each in needed(kind)
    ]
    if account:
        how = "by impersonation" if review.impersonates else "by an access review"
        yield CheckResult("permissions", f"of service account {account}, {how}")
    else:
        advice = "steps run as another subject: set --service-account pipeline-runner, or "
        advice += "default-editor in a profile"
        yield CheckResult("permissions", "your own", "note", advice)
    required = {permission.resource for permission, _ in answers if not permission.without}
    for permission, denied in answers:
        name, verbs = permission.resource, ", ".join(permission.verbs)
        if permission.without and name in required:
            name = f"{name} {verbs}"
        if not denied:
            yield CheckResult(name, f"{verbs}: permitted for {who}")
            continue
        bound = account or "the service account of the Trainer's step"
        advice = f"apply {_ROLE}, with {bound} in its RoleBinding"
        if permission.without:
            advice = f"without it, {permission.without}; {advice}"
        verdict = "note" if permission.without else "missing"
        yield CheckResult(name, f"{', '.join(denied)}: not permitted for {who}", verdict, advice)


class _Review:
    """Asks about one subject, with the first method that is allowed."""

    def __init__(self, reader: Reader, namespace: str, account: str | None):
        self._reader, self._namespace, self._account = reader, namespace, account
        self._user = f"system:serviceaccount:{namespace}:{account}"
        self.impersonates = False

    def allowed(self, permission: Permission, verb: str) -> bool:
        resource, _, sub = permission.resource.partition("/")
        asked: Json = {
            "namespace": self._namespace,
            "verb": verb,
            "group": permission.group,
            "resource": resource,
            **({"subresource": sub} if sub else {}),
        }
        if self._account and not self.impersonates:
            try:
                return self._about_another(asked)
            except Refused as error:
                if error.status != 403:
                    raise
                self.impersonates = True
        # Kubernetes adds the groups of a service account.
        headers = {"Impersonate-User": self._user} if self._account else {}
        return self._ask("SelfSubjectAccessReview", "", {}, asked, headers)

    def _about_another(self, asked: Json) -> bool:
        """Asks in the namespace, because its administrators may not ask for the whole cluster."""
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
        answer = self._reader.post(path, body, headers)
        return bool(answer.get("status", {}).get("allowed"))
