"""Checks a cluster before a training starts there; changes nothing."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes import capacity
from stagecraft.components.kubernetes.api import connection
from stagecraft.components.kubernetes.api.connection import Refused
from stagecraft.components.kubernetes.api.reader import CheckResult, Json, Reader, as_allowed
from stagecraft.components.kubernetes.jobs.cluster_job import (
    ClusterJob,
    Permission,
    needs_newer_kubernetes,
)
from stagecraft.components.kubernetes.jobs.request import JOB_LABEL, PART_OF, JobRequest
from stagecraft.components.kubernetes.jobs.settings import CLUSTER_JOBS, Volume
from stagecraft.components.object_store.folder import is_address

_TESTED = (1, 29)  # the oldest Kubernetes version whose schemas are in the tests

_REVIEWS = "/apis/authorization.k8s.io/v1"
"""https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access"""

_ROLE = "manifests/base/training-access.yaml"
_POLICY = "manifests/base/training-network.yaml"
_CLAIM = "manifests/base/checkpoints.yaml"
_ANYWHERE = ("0.0.0.0/0", "::/0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedTraining:
    """A training that has not started yet."""

    request: JobRequest
    folder: str  # ``kubeflow.job.folder``
    checkpoints: str  # ``kubeflow.checkpoints``
    default_image: str  # default of ``kubeflow.image``
    account: str | None = None  # service account of the Trainer's step; None: the current user


def check_cluster(client: Any, training: PlannedTraining) -> Iterator[CheckResult]:
    """All checks, the most fundamental first."""
    reader, request = Reader(client), training.request
    namespace, kind = request.namespace, CLUSTER_JOBS.get(request.job.kind)
    core, folders = f"/api/v1/namespaces/{namespace}", (training.folder, training.checkpoints)
    yield from as_allowed("api", _api(client, reader, request, kind))
    advice = "name an existing one with --namespace"
    yield from as_allowed("namespace", _exists(reader, core, "namespace", namespace, advice))
    yield from as_allowed("kind", _kind(reader, kind))
    for needed in kind.required_objects(namespace):
        missing = f"no {needed.title} in namespace {namespace}"
        check = _exists(
            reader, needed.path, needed.check, needed.title, needed.advice, missing=missing
        )
        yield from as_allowed(needed.check, check)
    yield _objects(request, kind)
    yield _image(request, training.default_image)
    yield from as_allowed("permissions", check_access(reader, namespace, kind, training.account))
    yield from as_allowed("network", _network(reader, request))
    yield from capacity.check(reader, request, kind)
    yield _folder("kubeflow.job.folder", training.folder, request, "jobs")
    yield _folder("kubeflow.checkpoints", training.checkpoints, request, "checkpoints")
    yield from check_claims(reader, request, folders)
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, setting, value, place in (
        ("account", "service_account", request.job.service_account, f"{core}/serviceaccounts"),
        ("priority", "priority_class", request.job.priority_class, classes),
    ):
        if value:
            advice = f"create it, or remove kubeflow.job.{setting}"
            yield from as_allowed(name, _exists(reader, f"{place}/{value}", name, value, advice))
    if request.job.queue:
        yield from as_allowed("queue", _queue(reader, request))


def _exists(
    reader: Reader, path: str, name: str, found: str, advice: str, *, missing: str = ""
) -> Iterator[CheckResult]:
    if reader.get(path) is not None:
        yield CheckResult(name, found)
    else:
        yield CheckResult(name, missing or f"{found} does not exist", "missing", advice)


def _api(
    client: Any, reader: Reader, request: JobRequest, kind: ClusterJob
) -> Iterator[CheckResult]:
    reader.get("/version")  # for 401 and no answer, with the reader's messages
    version = connection.version(client)
    found = f"Kubernetes {_dotted(version)} at {reader.host}"
    if too_old := needs_newer_kubernetes(kind, request, version):
        problem, other = too_old
        yield CheckResult("api", found, "missing", f"{problem}: use kubeflow.job.kind: {other}")
    elif version < _TESTED:
        advice = f"the objects were checked against {_dotted(_TESTED)} and later"
        yield CheckResult("api", found, "note", advice)
    else:
        yield CheckResult("api", found)


def _kind(reader: Reader, kind: ClusterJob) -> Iterator[CheckResult]:
    name = f"{kind.plural}.{kind.group}/{kind.version}"
    served = _served(reader, kind.group)
    path = f"/apis/{kind.group}/{kind.version}"
    resources = (reader.get(path) or {}).get("resources", [])
    if any(each.get("name") == kind.plural for each in resources):
        yield CheckResult("kind", f"{name}, of {', '.join(served)}")
        return
    group = f"the API group {kind.group}"
    if kind.version in served:
        found = f"{group} does not have this resource"
    elif served:
        found = f"{group} has only {', '.join(served)}"
    else:
        found = f"{group} does not exist"
    advice = f"install {kind.controller}"
    if kind.needs_operator:
        advice += ", or set kubeflow.job.kind=job, which needs no operator"
    yield CheckResult("kind", f"no {name}: {found}", "missing", advice)


def _served(reader: Reader, group: str) -> list[str]:
    versions = (reader.get(f"/apis/{group}") or {}).get("versions", [])
    return [str(each["version"]) for each in versions]


def _objects(request: JobRequest, kind: ClusterJob) -> CheckResult:
    try:
        kind.render(request)
    except UserError as error:
        found = f"a {kind.name} cannot have these settings"
        return CheckResult("job", found, "missing", str(error))
    counts = ", ".join(f"{count} {role}" for role, count in request.processes.items())
    return CheckResult("job", f"{kind.name} of {counts}")


def _image(request: JobRequest, default: str) -> CheckResult:
    image = request.pod.image or request.image
    advice = "set kubeflow.image to yours, best by its digest: registry/name@sha256:…"
    if request.pod.pull_policy(image) is None:
        found = f"{image}: Kubernetes pulls it for each pod"
        return CheckResult("image", found, "note", f"give it a version as its tag, or {advice}")
    if image == default:
        advice = f"load it on each node (docs/how-to/kubeflow.md), or {advice}"
        found = f"{image}: this default image is in no registry"
        return CheckResult("image", found, "note", advice)
    if "@sha256:" not in image:
        advice = "name it by its digest (@sha256:…): otherwise, its pods may get different images"
        return CheckResult("image", image, "note", advice)
    return CheckResult("image", image)


def _queue(reader: Reader, request: JobRequest) -> Iterator[CheckResult]:
    queue, group = request.job.queue, "kueue.x-k8s.io"
    served = _served(reader, group)
    if not served:
        advice = "install Kueue, or remove kubeflow.job.queue"
        yield CheckResult("queue", f"LocalQueue {queue}: Kueue is not installed", "missing", advice)
        return
    place = f"/apis/{group}/{served[0]}/namespaces/{request.namespace}/localqueues/{queue}"
    found = reader.get(place)
    if found is None:
        advice = "create it, or set kubeflow.job.queue to an existing one"
        missing = f"no LocalQueue {queue} in namespace {request.namespace}"
        yield CheckResult("queue", missing, "missing", advice)
        return
    for condition in found.get("status", {}).get("conditions", ()):
        if condition.get("type") == "Active" and condition.get("status") == "False":
            text = f"LocalQueue {queue} is not active: {condition.get('message', '')}"
            yield CheckResult("queue", text, "missing", "its ClusterQueue admits no jobs now")
            return
    yield CheckResult("queue", f"LocalQueue {queue}")


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def needed_permissions(kind: ClusterJob) -> list[Permission]:
    """Permissions that ``TrainingJob`` and ``ClusterLease`` need."""
    return [
        *kind.permissions(),
        Permission("coordination.k8s.io", "leases", ("create", "get", "update", "delete")),
        Permission("", "pods", ("list",)),
        Permission("", "pods", ("watch",), "the step does not say how a deleted pod ended"),
        Permission("", "pods/log", ("get",), "the step's log lacks what the pods print"),
        Permission("", "events", ("list",), "the step does not say why a pod is not scheduled"),
    ]


def check_access(
    reader: Reader, namespace: str, kind: ClusterJob, account: str | None
) -> Iterator[CheckResult]:
    """A result for the subject (``account`` None: the user), and one for each permission."""
    review = _Review(reader, namespace, account)
    who = f"service account {account}" if account else "you"
    answers = [
        (each, [verb for verb in each.verbs if not review.allowed(each, verb)])
        for each in needed_permissions(kind)
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


def _network(reader: Reader, request: JobRequest) -> Iterator[CheckResult]:
    """Whether pods of a training accept connections of some pods alone.

    Policies add up (https://kubernetes.io/docs/concepts/services-networking/network-policies/): one
    that lets everybody in counts as much as one that lets nobody in.
    """
    path = f"/apis/networking.k8s.io/v1/namespaces/{request.namespace}/networkpolicies"
    labels = {JOB_LABEL: request.name, PART_OF: "stagecraft"}
    policies = [
        each
        for each in reader.items(path)
        if "Ingress" in each["spec"].get("policyTypes", ["Ingress"])
        and _selects(each["spec"].get("podSelector") or {}, labels)
    ]
    advice = (
        "TensorFlow's servers have no authentication: who reaches a pod can read and write its "
        f"files; apply {_POLICY}, with a network plugin that enforces policies"
    )
    names = ", ".join(sorted(each["metadata"]["name"] for each in policies))
    if not policies:
        found = "no NetworkPolicy for the pods of a training: each pod of the cluster reaches them"
        yield CheckResult("network", found, "note", advice)
    elif open_ := [each["metadata"]["name"] for each in policies if _lets_all_in(each["spec"])]:
        found = f"the NetworkPolicy {', '.join(open_)} lets everybody reach the pods of a training"
        yield CheckResult("network", found, "note", advice)
    else:
        yield CheckResult("network", f"NetworkPolicy {names}")


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects a pod."""
    exact = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        _holds(each, labels) for each in selector.get("matchExpressions") or ()
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    if expression["operator"] == "Exists":
        return key in labels
    if expression["operator"] == "DoesNotExist":
        return key not in labels
    return (labels.get(key) in values) == (expression["operator"] == "In")


def _lets_all_in(spec: Mapping[str, Any]) -> bool:
    """Whether a rule has no sources, or all addresses or namespaces as a source."""
    for rule in spec.get("ingress") or ():
        sources = rule.get("from") or ()
        if not sources:
            return True
        for source in sources:
            block = (source.get("ipBlock") or {}).get("cidr")
            spaces = source.get("namespaceSelector")
            if block in _ANYWHERE or (spaces == {} and not source.get("podSelector")):
                return True
    return False


def _folder(setting: str, path: str, request: JobRequest, example: str) -> CheckResult:
    """Whether a folder for all pods, such as ``example``, is on a volume or in an object store."""
    name, volumes = setting.rpartition(".")[2], request.pod.volumes
    if is_address(path):
        return _stored(name, path, request)
    if volume := _holding(path, volumes):
        return CheckResult(name, f"{path}, on claim {volume.claim}")
    if not volumes:
        advice = "set kubeflow.steps.Trainer.volumes: [{claim: training, path: /mnt/training}], "
        advice += f"or {setting} to a URI in an object store, such as s3://bucket/{example}"
        return CheckResult(
            name, f"{path or 'not set'}, and the step has no volume", "missing", advice
        )
    mounted = ", ".join(volume.path for volume in volumes)
    found = f"{path or 'not set'}: not on a volume ({mounted})"
    advice = f"set {setting}={volumes[0].path.rstrip('/')}/{example}"
    return CheckResult(name, found, "missing", advice)


def _stored(name: str, path: str, request: JobRequest) -> CheckResult:
    """Whether the pods have credentials; only the pods can use them."""
    keys = {secret.env for secret in request.pod.secrets} | {*request.pod.env}
    if "AWS_ACCESS_KEY_ID" in keys and not path.startswith("gs://"):
        return CheckResult(name, f"{path}, with the keys in AWS_ACCESS_KEY_ID")
    if account := request.job.service_account:
        return CheckResult(name, f"{path}, as service account {account} may")
    advice = "set keys for the pods (kubeflow.steps.Trainer.secrets: AWS_ACCESS_KEY_ID, "
    advice += "AWS_SECRET_ACCESS_KEY), or a service account that may write there "
    advice += "(kubeflow.job.service_account), unless their nodes may"
    return CheckResult(name, f"{path}, with no keys", "note", advice)


def check_claims(
    reader: Reader, request: JobRequest, written: Sequence[str]
) -> Iterator[CheckResult]:
    """A result for each claim; all pods write to the folders ``written``."""
    volumes = request.pod.volumes
    holding = (_holding(path, volumes) for path in written)
    shared = {volume.claim for volume in holding if volume}
    for claim in dict.fromkeys(volume.claim for volume in volumes):
        check = _claim(reader, request, claim, claim in shared)
        yield from as_allowed(f"claim {claim}", check)


def _holding(path: str, volumes: Sequence[Volume]) -> Volume | None:
    place = pathlib.PurePosixPath(path)
    return next((volume for volume in volumes if place.is_relative_to(volume.path)), None)


def _claim(reader: Reader, request: JobRequest, claim: str, written: bool) -> Iterator[CheckResult]:
    name = f"claim {claim}"
    path = f"/api/v1/namespaces/{request.namespace}/persistentvolumeclaims/{claim}"
    found = reader.get(path)
    if found is None:
        advice = f"apply {_CLAIM} (it names the claim training), or name another claim in "
        advice += "kubeflow.steps.Trainer.volumes"
        yield CheckResult(name, f"is not in namespace {request.namespace}", "missing", advice)
        return
    phase = found.get("status", {}).get("phase", "Pending")
    if found["metadata"].get("deletionTimestamp") or phase == "Lost":
        state = "is lost" if phase == "Lost" else "is being deleted"
        yield CheckResult(name, state, "missing", f"create it again: {_CLAIM}")
        return
    problem = _modes(found, request.count, written)
    if problem:
        yield problem
    elif phase == "Bound":
        modes = found.get("status", {}).get("accessModes") or found["spec"]["accessModes"]
        yield CheckResult(name, f"Bound, {', '.join(modes)}")
    else:
        yield _pending(reader, name, found)


def _modes(claim: Json, count: int, written: bool) -> CheckResult | None:
    """A problem with the access modes; the Trainer's step mounts the claim, too.

    https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes
    """
    name = f"claim {claim['metadata']['name']}"
    modes = claim.get("status", {}).get("accessModes") or claim["spec"].get("accessModes", [])
    if "ReadWriteMany" in modes or (not written and "ReadOnlyMany" in modes):
        return None
    found = ", ".join(modes) or "no access mode"
    advice = f"use a claim with ReadWriteMany, of a class that supports it ({_CLAIM})"
    if count == 1 and modes == ["ReadWriteOnce"]:
        found += ": its pod must run on the node of the Trainer's step"
        return CheckResult(name, found, "note", advice)
    return CheckResult(name, f"{found}: for {count} pods and the Trainer's step", "missing", advice)


def _pending(reader: Reader, name: str, claim: Json) -> CheckResult:
    storage = claim["spec"].get("storageClassName")
    advice = f"name a class that many nodes can mount: storageClassName in {_CLAIM}"
    if not storage:
        return CheckResult(name, "Pending, and has no storage class", "missing", advice)
    try:
        found = reader.get(f"/apis/storage.k8s.io/v1/storageclasses/{storage}")
    except Refused as error:
        if error.status != 403:
            raise
        advice = "kubectl describe pvc shows the reason; a class may wait for the first pod"
        return CheckResult(
            name, f"Pending; these credentials may not read class {storage}", "note", advice
        )
    if found is None:
        return CheckResult(name, f"Pending: class {storage} does not exist", "missing", advice)
    if found.get("volumeBindingMode") == "WaitForFirstConsumer":
        return CheckResult(name, f"Pending until a pod uses it (class {storage})")
    return CheckResult(name, f"Pending: class {storage} has provided no volume", "missing", advice)
