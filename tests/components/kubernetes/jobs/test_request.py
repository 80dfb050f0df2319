"""What a job may be called, and consist of."""

from __future__ import annotations

from typing import Any

import pytest
from job_requests import job_request

from stagecraft.components.kubernetes.jobs.job_settings import JobSettings
from stagecraft.schemas.errors import UserError


@pytest.mark.parametrize("name", ["a", "training-1", "x" * 40])
def test_a_name_may_be(name: str) -> None:
    assert job_request("job", name=name).labels["stagecraft.dev/job"] == name


@pytest.mark.parametrize("name", ["", "1", "-a", "a-", "A", "a_b", "a.b", "x" * 41, "a\n", "über"])
def test_a_name_may_not_be(name: str) -> None:
    with pytest.raises(UserError, match=r"a job's name: .* such as training-1\.$"):
        job_request("job", name=name)


@pytest.mark.parametrize("namespace", ["", "A", "a/b", "x" * 64])
def test_a_namespace_may_not_be(namespace: str) -> None:
    with pytest.raises(UserError, match="a namespace: "):
        job_request("job", namespace=namespace)


@pytest.mark.parametrize("queue", ["a b", "-a", "x" * 64])
def test_a_queue_is_a_labels_value(queue: str) -> None:
    with pytest.raises(UserError, match=r"kubeflow\.job\.queue: "):
        job_request("job", job=JobSettings(queue=queue))


@pytest.mark.parametrize(
    "wrong",
    [
        {"processes": {}},
        {"processes": {"worker": 0}},
        {"processes": {"worker": 1, "chief": 1}},
        {"processes": {"process": 1}},
        {"serves": frozenset({"ps"})},
    ],
)
def test_processes_are_of_the_known_kinds_in_order(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="processes: "):
        job_request("job", **wrong)


def test_the_longest_name_leaves_room_for_those_of_pods_and_services() -> None:
    job = job_request("job", name="x" * 40).name
    # JobSet checks the first one (pkg/webhooks/jobset_webhook.go).
    for made in (f"{job}-node-0-99999-abcde", f"{job}-evaluator-0", f"{job}-99999-abcde"):
        assert len(made) <= 63
