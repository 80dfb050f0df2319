"""What the launcher says of pods that end, and what it does not wait for."""

import pytest

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.api import pod_status
from stagecraft.components.kubernetes.jobs.kinds.job import JOB
from stagecraft.components.kubernetes.launch.training_job import PodReporter
from stagecraft.trainer_module.processes import exit_codes

STARTED = "2026-11-22T00:00:00Z"


def ended(code, reason, message=None):
    """A pod whose container ended, as the API returns it."""
    terminated = {"exitCode": code, "reason": reason, "message": message}
    return pod_status.pod_of(
        {
            "metadata": {"name": "train-1", "uid": "u", "creationTimestamp": STARTED},
            "status": {
                "phase": "Failed",
                "containerStatuses": [{"state": {"terminated": terminated}}],
            },
        }
    )


def test_a_command_that_cannot_be_started_is_not_tried_again():
    log = []
    reporter = PodReporter(JOB, ["worker 0"], log.append, lambda: 0.0)
    pod = ended(exit_codes.START_ERROR, "StartError", 'exec: "python": not found in $PATH')
    with pytest.raises(UserError) as refused:
        reporter.check([pod])
    assert refused.value.record == "train-1"
    assert 'exec: "python"' in str(refused.value) and 'exec: "python"' in log[0]
    assert 'exec: "python"' in reporter.failure_summary("", False)


def test_a_lost_process_is():
    reporter = PodReporter(JOB, ["worker 0"], lambda line: None, lambda: 0.0)
    reporter.check([ended(137, "OOMKilled"), ended(1, "Error", "termination log")])


def test_a_cause_is_written_once():
    log = []
    reporter = PodReporter(JOB, ["worker 0"], log.append, lambda: 0.0)
    for message in ("Failed: exit code 137", "BackOff: exit code 1", "Again: exit code 1"):
        reporter.report_event("worker 0", message, has_all_pods=True)
    assert [line.partition(": exit ")[0] for line in log] == [
        "worker 0: Failed",
        "worker 0: BackOff",
    ]


def test_a_pod_over_its_memory_limit_names_the_limit_and_the_setting():
    log = []
    reporter = PodReporter(JOB, ["worker 0"], log.append, lambda: 0.0)
    reporter.check([ended(137, "OOMKilled")._replace(memory_limit="450Mi")])
    reporter.check([ended(137, "OOMKilled")._replace(name="train-2", uid="v")])
    assert "450Mi" in log[0]
    assert all("steps.Trainer.memory" in line for line in log)
