"""``manifests/``: what its overlays make is valid, complete, and asks for no more than it says."""

from __future__ import annotations

import copy
import itertools
import pathlib
import re
import shutil
from typing import Any

import kubernetes_validate
import pytest
import yaml
from processes import ran

from stagecraft.components.kubernetes.jobs.request import JOB_LABEL
from stagecraft.pipeline.settings.kubeflow import OWN_STORE, KubeflowSettings

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "manifests"
VERSIONS = ("1.29", kubernetes_validate.latest_version())
KUSTOMIZATION = {"apiVersion", "kind", "namespace", "resources", "patches"}
"""The fields that ``build`` knows. Kustomize itself knows more."""

STEPS = {"single-user": "pipeline-runner", "profile": "default-editor"}
"""The service accounts that Kubeflow makes, and that its steps run as."""

KFP_VERBS = {
    "pipelines": {"create", "get", "list", "update", "delete"},
    "experiments": {"create", "get", "list", "archive", "unarchive", "delete"},
    "runs": {"create", "get", "list", "terminate", "retry", "archive", "unarchive", "delete"},
    "jobs": {"create", "get", "list", "enable", "disable", "delete"},
}
"""What Kubeflow Pipelines asks about (backend/src/apiserver/common/const.go, and its callers)."""

Manifest = dict[str, Any]


def build(folder: pathlib.Path, used: set[pathlib.Path]) -> list[Manifest]:
    """What ``kustomize build`` makes of a folder, for the few features that we use."""
    file = folder / "kustomization.yaml"
    used.add(file)
    kustomization = yaml.safe_load(file.read_text())
    unknown = set(kustomization) - KUSTOMIZATION
    assert not unknown, f"{file}: {', '.join(sorted(unknown))}"
    assert kustomization["apiVersion"] == "kustomize.config.k8s.io/v1beta1"
    assert kustomization["kind"] == "Kustomization"
    made: list[Manifest] = []
    for entry in kustomization["resources"]:
        path = (folder / entry).resolve()
        if path.is_dir():
            made += build(path, used)
        else:
            used.add(path)
            made += yaml.safe_load_all(path.read_text())
    for patch in kustomization.get("patches", ()):
        assert set(patch) == {"target", "patch"}
        matching = [each for each in made if matches(each, patch["target"])]
        assert matching, f"{file}: nothing is {patch['target']}"
        for manifest in matching:
            apply(manifest, yaml.safe_load(patch["patch"]))
    if "namespace" in kustomization:
        set_namespace(made, kustomization["namespace"])
    return made


def matches(manifest: Manifest, target: dict[str, str]) -> bool:
    assert set(target) == {"group", "kind", "name"}
    group = manifest["apiVersion"].rpartition("/")[0]
    return (group, manifest["kind"], manifest["metadata"]["name"]) == tuple(
        target[key] for key in ("group", "kind", "name")
    )


def apply(manifest: Manifest, operations: list[dict[str, Any]]) -> None:
    """RFC 6902, but for replacements only."""
    for operation in operations:
        assert set(operation) == {"op", "path", "value"} and operation["op"] == "replace"
        *parents, last = [int(p) if p.isdigit() else p for p in operation["path"].split("/")[1:]]
        place: Any = manifest
        for parent in parents:
            place = place[parent]
        assert place[last] is not None  # a replacement needs what it replaces
        place[last] = operation["value"]


def set_namespace(made: list[Manifest], namespace: str) -> None:
    """On each object, and on those subjects that are service accounts of the build."""
    accounts = {m["metadata"]["name"] for m in made if m["kind"] == "ServiceAccount"}
    for manifest in made:
        manifest["metadata"]["namespace"] = namespace
        for subject in manifest.get("subjects", ()):
            if subject["kind"] == "ServiceAccount" and subject["name"] in accounts:
                subject["namespace"] = namespace


def check(manifest: Manifest) -> None:
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)


def of_kind(made: list[Manifest], kind: str) -> dict[str, Manifest]:
    """Objects by name."""
    return {each["metadata"]["name"]: each for each in made if each["kind"] == kind}


@pytest.fixture(params=sorted(STEPS))
def overlay(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def made(overlay: str) -> list[Manifest]:
    return build(FOLDER / "overlays" / overlay, set())


def test_every_object_is_valid(made: list[Manifest]) -> None:
    for manifest in made:
        check(manifest)
        assert manifest["metadata"]["labels"] == {"app.kubernetes.io/part-of": "stagecraft"}
    check(yaml.safe_load((FOLDER / "secrets.example.yaml").read_text()))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("Role", lambda role: role["rules"][0].update(verb=["get"])),
        ("Role", lambda role: role["rules"][0].pop("verbs")),
        ("RoleBinding", lambda binding: binding["subjects"][0].update(nmae="x")),
        ("RoleBinding", lambda binding: binding["roleRef"].pop("name")),
        ("PersistentVolumeClaim", lambda claim: claim["spec"].update(accessModes="ReadWriteMany")),
        ("PersistentVolumeClaim", lambda claim: claim["spec"].update(storageClass="nfs")),
        ("ServiceAccount", lambda account: account.update(automountToken=False)),
    ],
)
def test_a_wrong_object_is_noticed(kind: str, change: Any) -> None:
    made = build(FOLDER / "overlays" / "profile", set())
    wrong = copy.deepcopy(next(iter(of_kind(made, kind).values())))
    change(wrong)
    with pytest.raises(kubernetes_validate.ValidationError):
        check(wrong)


def test_a_wrong_kustomization_is_noticed(tmp_path: pathlib.Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "overlays" / "profile" / "kustomization.yaml"
    right = file.read_text()
    file.write_text(right.replace("patches:", "patchez:"))
    with pytest.raises(AssertionError, match="patchez"):
        build(file.parent, set())
    file.write_text(right.replace("name: stagecraft-training", "name: no-such-binding"))
    with pytest.raises(AssertionError, match="no-such-binding"):
        build(file.parent, set())


def test_every_file_is_used() -> None:
    used = {FOLDER / "README.md", FOLDER / "secrets.example.yaml"}
    for overlay in STEPS:
        build(FOLDER / "overlays" / overlay, used)
    build(FOLDER / "trainer-runtime", used)
    build(FOLDER / "flink", used)
    assert {file for file in FOLDER.rglob("*") if file.is_file()} == used
    readme = (FOLDER / "README.md").read_text()
    for file in used - {FOLDER / "README.md"}:
        named = file.parent if file.name == "kustomization.yaml" else file
        assert str(named.relative_to(FOLDER)) in readme


def test_bindings_give_roles_that_exist_to_accounts_that_exist(
    overlay: str, made: list[Manifest]
) -> None:
    accounts = of_kind(made, "ServiceAccount")
    bindings = of_kind(made, "RoleBinding")
    bound = set()
    for binding in bindings.values():
        assert binding["roleRef"]["kind"] == "Role"
        bound.add(binding["roleRef"]["name"])
        for subject in binding["subjects"]:
            assert subject["kind"] == "ServiceAccount"
            assert subject["name"] in {*accounts, STEPS[overlay]}
            own = binding["metadata"]["namespace"]
            assert subject.get("namespace", own) == own
    assert bound == set(of_kind(made, "Role")) == set(bindings)
    training = bindings["stagecraft-training"]
    assert [subject["name"] for subject in training["subjects"]] == [STEPS[overlay]]
    assert len({each["metadata"]["namespace"] for each in made}) == 1


def test_roles_give_little_and_say_why(made: list[Manifest]) -> None:
    rules = [rule for role in of_kind(made, "Role").values() for rule in role["rules"]]
    for rule in rules:
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not {"secrets", "pods/exec"} & set(rule["resources"])
        if rule["apiGroups"] == ["pipelines.kubeflow.org"]:
            for resource in rule["resources"]:
                assert set(rule["verbs"]) <= KFP_VERBS[resource]
    for file in FOLDER.rglob("*-access.yaml"):
        lines = file.read_text().splitlines()
        for before, line in itertools.pairwise(lines):
            assert not line.startswith("- apiGroups") or before.startswith("# "), line


def test_names_are_those_of_the_documentation(made: list[Manifest]) -> None:
    docs = (ROOT / "docs" / "how-to" / "kubeflow.md").read_text()
    assert (
        set(of_kind(made, "PersistentVolumeClaim"))
        == set(re.findall(r"claim: ([\w-]+)", docs))
        == {"training"}
    )

    example = yaml.safe_load((FOLDER / "secrets.example.yaml").read_text())
    secret = re.compile(r"\{name: ([\w-]+), key: ([\w-]+), env: \w+\}")
    # The store of Kubeflow has its own: our example must not replace its keys.
    own = {secret.name for secret in OWN_STORE}
    assert example["metadata"]["name"] not in own and own <= set(re.findall(r"`([\w-]+)`", docs))
    assert {secret.key for secret in OWN_STORE} == set(example["stringData"])
    named = set(secret.findall((FOLDER / "README.md").read_text()))
    assert named == {(example["metadata"]["name"], key) for key in example["stringData"]}


def test_only_pods_of_trainings_reach_pods_of_trainings(made: list[Manifest]) -> None:
    """By a label that all kinds of jobs give their pods."""
    [policy] = of_kind(made, "NetworkPolicy").values()
    pods = {"matchExpressions": [{"key": JOB_LABEL, "operator": "Exists"}]}
    assert policy["spec"] == {
        "podSelector": pods,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": pods}]}],
    }


def test_no_file_holds_a_secret(made: list[Manifest]) -> None:
    assert "Secret" not in {each["kind"] for each in made}
    example = yaml.safe_load((FOLDER / "secrets.example.yaml").read_text())
    assert "data" not in example
    assert set(example["stringData"].values()) == {""}


@pytest.fixture
def flink() -> list[Manifest]:
    return build(FOLDER / "flink", set())


def test_objects_for_flink_are_valid(flink: list[Manifest]) -> None:
    for manifest in flink:
        if manifest["kind"] != "FlinkDeployment":  # its schema is the operator's
            check(manifest)
        assert manifest["metadata"]["labels"] == {"app.kubernetes.io/part-of": "stagecraft"}
    [cluster] = of_kind(flink, "FlinkDeployment").values()
    template = cluster["spec"]["taskManager"]["podTemplate"]
    check({**template, "metadata": {"name": "taskmanager", **template["metadata"]}})


def test_versions_of_flink_and_beam_are_one(flink: list[Manifest]) -> None:
    [cluster] = of_kind(flink, "FlinkDeployment").values()
    version = cluster["spec"]["flinkVersion"].removeprefix("v").replace("_", ".")
    assert cluster["spec"]["image"].startswith(f"flink:{version}-")
    [server] = _containers(
        of_kind(flink, "Deployment")["stagecraft-job-server"]["spec"]["template"]
    )
    lock = (ROOT / "requirements.lock").read_text()
    [beam] = re.findall(r"^apache-beam==(\S+) ; python_full_version >=", lock, re.M)
    assert server["image"] == f"apache/beam_flink{version}_job_server:{beam}"


def test_workers_have_the_keys_of_the_steps_and_the_ports_that_others_name(
    flink: list[Manifest],
) -> None:
    [(name, cluster)] = of_kind(flink, "FlinkDeployment").items()
    [pool] = _containers(cluster["spec"]["taskManager"]["podTemplate"])
    keys = {(entry["name"], *entry["valueFrom"]["secretKeyRef"].values()) for entry in pool["env"]}
    assert keys == {(secret.env, secret.name, secret.key) for secret in OWN_STORE}
    assert pool["args"] == ["--worker_pool"] and pool["image"] == KubeflowSettings().image
    service = of_kind(flink, "Service")["stagecraft-job-server"]["spec"]
    [server] = _containers(
        of_kind(flink, "Deployment")["stagecraft-job-server"]["spec"]["template"]
    )
    assert f"--flink-master={name}-rest:8081" in server["args"]  # the operator's Service
    for port in service["ports"]:
        assert f"--{port['name']}-port={port['port']}" in server["args"]
    docs = (ROOT / "docs" / "how-to" / "beam.md").read_text()
    [job] = [port["port"] for port in service["ports"] if port["name"] == "job"]
    assert f"--job_endpoint=stagecraft-job-server.kubeflow:{job}" in docs
    assert f"--environment_config=localhost:{pool['ports'][0]['containerPort']}" in docs


def _containers(template: Manifest) -> list[Manifest]:
    return template["spec"]["containers"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kubectl_builds_the_same(overlay: str, made: list[Manifest]) -> None:
    done = ran("kubectl", "kustomize", FOLDER / "overlays" / overlay)

    def key(manifest: Manifest) -> tuple[str, str]:
        return manifest["kind"], manifest["metadata"]["name"]

    assert sorted(yaml.safe_load_all(done.stdout), key=key) == sorted(made, key=key)
