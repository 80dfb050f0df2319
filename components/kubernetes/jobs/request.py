"""A training as a cluster job is asked for it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from stagecraft.components.kubernetes.jobs.job_settings import JobSettings
from stagecraft.components.kubernetes.jobs.pod_settings import PodSettings
from stagecraft.schemas.errors import SettingError

Json = dict[str, Any]

PORT = 2222
"""Of each process: the training operator's default."""

PART_OF = "app.kubernetes.io/part-of"
JOB_LABEL = "stagecraft.dev/job"
"""Label of each object and each pod of a training: the job's name."""

NAME_LENGTH = 40
"""Names of pods and Services add up to 23 characters to the job's, and have 63."""

ROLES = ("chief", "worker", "ps", "evaluator")

_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""RFC 1035, which Services and TFJobs require of names."""

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One training on a cluster."""

    name: str
    """Of the job: a DNS label of at most 40 characters, the same for the same training."""

    namespace: str
    image: str
    command: tuple[str, ...]
    """Of each process; its environment tells the process its role."""

    processes: Mapping[str, int]
    """How many of each role, in the order of ``trainer_module.parallel.roles.jobs``."""

    serves: frozenset[str] = frozenset()
    """The roles that never end by themselves (parameter_server's workers and ps)."""

    max_restarts: int = 3
    """Of a lost process."""

    pod: PodSettings = dataclasses.field(default_factory=PodSettings)
    """What each pod gets; a ps gets no GPUs, an evaluator one."""

    job: JobSettings = dataclasses.field(default_factory=JobSettings)
    owner: Json | None = None
    """An owner reference: Kubernetes deletes the job with its owner."""

    def __post_init__(self) -> None:
        """Checks names and processes.

        Raises:
            SettingError: Kubernetes would refuse a name.
        """
        if not _DNS_LABEL.fullmatch(self.name) or len(self.name) > NAME_LENGTH:
            raise SettingError(
                "name",
                repr(self.name),
                "cannot name a job",
                f"at most {NAME_LENGTH} characters of a-z, 0-9 and - that begin with a letter and "
                "end with a letter or digit, such as training-1",
            )
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", self.namespace):
            raise SettingError(
                "namespace",
                repr(self.namespace),
                "cannot name a namespace",
                "at most 63 characters of a-z, 0-9 and - that begin and end with a letter or "
                "digit, such as kubeflow",
            )
        if not _LABEL_VALUE.fullmatch(self.job.queue):
            raise SettingError(
                "kubeflow.job.queue",
                repr(self.job.queue),
                "cannot name a LocalQueue",
                "a name such as training",
            )
        known = [role for role in ROLES if self.processes.get(role, 0) > 0]
        if not known or list(self.processes) != known or not self.serves <= {*known}:
            raise ValueError(
                f"processes: {dict(self.processes)}, serves: {sorted(self.serves)}: expected "
                f"positive numbers of {', '.join(ROLES)}, in this order"
            )

    @property
    def count(self) -> int:
        """Number of all processes."""
        return sum(self.processes.values())

    @property
    def labels(self) -> dict[str, str]:
        """Of each object."""
        return {
            PART_OF: "stagecraft",
            JOB_LABEL: self.name,
            **({"kueue.x-k8s.io/queue-name": self.job.queue} if self.job.queue else {}),
        }

    def metadata(self) -> Json:
        """Of each object."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.labels,
            **({"ownerReferences": [self.owner]} if self.owner else {}),
        }
