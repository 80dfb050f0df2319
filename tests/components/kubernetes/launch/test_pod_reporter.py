"""What the launcher says of pods that end, and what it does not wait for."""

import datetime
from types import SimpleNamespace

import pytest

from stagecraft.components.kubernetes.api import pod_status
from stagecraft.components.kubernetes.jobs.kinds.job import JOB
from stagecraft.components.kubernetes.launch.pod_reporter import PodReporter
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.processes import exit_codes

STARTED = datetime.datetime(2026, 11, 22, tzinfo=datetime.timezone.utc)


def ended(code, reason, message=None):
    """A pod whose container ended, as the Kubernetes client returns it."""
    terminated = SimpleNamespace(exit_code=code, reason=reason, message=message)
    state = SimpleNamespace(terminated=terminated, waiting=None)
    status = SimpleNamespace(
        phase="Failed",
        reason=None,
        message=None,
        conditions=[],
        container_statuses=[SimpleNamespace(state=state)],
    )
    metadata = SimpleNamespace(
        name="train-1", labels={}, annotations={}, creation_timestamp=STARTED, uid="u"
    )
    metadata.deletion_timestamp = None
    return pod_status.pod_of(SimpleNamespace(metadata=metadata, status=status))


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
