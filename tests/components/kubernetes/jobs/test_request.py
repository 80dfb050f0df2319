"""Names and processes of a job."""

from typing import Any

import pytest
from job_requests import job_request

from stagecraft.common.errors import SettingError
from stagecraft.components.kubernetes.jobs.settings import JobSettings


@pytest.mark.parametrize("name", ["a", "training-1", "x" * 40])
def test_names_of_jobs(name):
    assert job_request("job", name=name).labels["stagecraft.dev/job"] == name


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(
            ("name", name)
            for name in ("", "1", "-a", "a-", "A", "a_b", "a.b", "x" * 41, "a\n", "über")
        ),
        *(("namespace", namespace) for namespace in ("", "A", "a/b", "x" * 64)),
        *(("kubeflow.job.queue", queue) for queue in ("a b", "-a", "x" * 64)),
    ],
)
def test_refused_names(setting, value):
    field = setting.rpartition(".")[2]
    more: dict[str, Any] = {field: value} if field != "queue" else {"job": JobSettings(queue=value)}
    with pytest.raises(SettingError) as caught:
        job_request("job", **more)
    assert (caught.value.setting, caught.value.value) == (setting, repr(value))


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
def test_processes_have_known_roles_in_order(wrong):
    with pytest.raises(ValueError, match="processes: "):
        job_request("job", **wrong)


def test_the_longest_name_leaves_room_for_those_of_pods_and_services():
    job = job_request("job", name="x" * 40).name
    # JobSet checks the first one (pkg/webhooks/jobset_webhook.go).
    for made in (f"{job}-node-0-99999-abcde", f"{job}-evaluator-0", f"{job}-99999-abcde"):
        assert len(made) <= 63
