"""What a job is rendered from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from stagecraft.components.kubernetes.jobs.job_settings import JobSettings
from stagecraft.components.kubernetes.jobs.pod_settings import PodSettings
from stagecraft.schemas.errors import UserError

Json = dict[str, Any]

PORT = 2222
"""That processes listen on: the training operator's default."""

PART_OF = "app.kubernetes.io/part-of"
JOB_LABEL = "stagecraft.dev/job"
"""Of each object and each pod of a training: the job's name."""

NAME_LENGTH = 40
"""Names of pods and Services add up to 23 characters to the job's, and have 63."""

KINDS = ("chief", "worker", "ps", "evaluator")

_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""RFC 1035, as Services and TFJobs want their names."""

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One training, as a cluster has to know it."""

    name: str
    """Of the job, a DNS label of 40 characters at most; the same whenever the same is asked for."""

    namespace: str
    image: str
    command: tuple[str, ...]
    """Of each process; which one it is, its environment says."""

    processes: Mapping[str, int]
    """How many of each kind, in the order of ``trainer_module.processes.roles.jobs``: chief,
    worker, ps, evaluator."""

    serves: frozenset[str] = frozenset()
    """Those kinds that never end by themselves (parameter_server's workers and ps)."""

    max_restarts: int = 3
    """Of a process, after it was lost."""

    pod: PodSettings = dataclasses.field(default_factory=PodSettings)
    """What each pod gets; a ps gets no GPUs, an evaluator one."""

    job: JobSettings = dataclasses.field(default_factory=JobSettings)
    owner: Json | None = None
    """An owner reference: what goes when that goes."""

    def __post_init__(self) -> None:
        """Checks names and processes.

        Raises:
            UserError: Kubernetes would refuse one.
        """
        if not _DNS_LABEL.fullmatch(self.name) or len(self.name) > NAME_LENGTH:
            raise UserError(
                f"a job's name: {self.name!r}: expected up to {NAME_LENGTH} of a-z, 0-9 and -, the "
                "first a letter, the last no -, such as training-1."
            )
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", self.namespace):
            raise UserError(
                f"a namespace: {self.namespace!r}: expected up to 63 of a-z, 0-9 and -, the first "
                "and the last no -, such as kubeflow."
            )
        if not _LABEL_VALUE.fullmatch(self.job.queue):
            raise UserError(
                f"kubeflow.job.queue: {self.job.queue!r}: expected the name of a LocalQueue, such "
                "as training."
            )
        known = [kind for kind in KINDS if self.processes.get(kind, 0) > 0]
        if not known or list(self.processes) != known or not self.serves <= {*known}:
            raise ValueError(
                f"processes: {dict(self.processes)}, serves: {sorted(self.serves)}: expected one "
                f"or more of some of {', '.join(KINDS)}, in that order"
            )

    @property
    def count(self) -> int:
        """Of all processes."""
        return sum(self.processes.values())

    @property
    def labels(self) -> dict[str, str]:
        """Of each object."""
        return {
            PART_OF: "stagecraft",
            JOB_LABEL: self.name,
            **({"kueue.x-k8s.io/queue-name": self.job.queue} if self.job.queue else {}),
        }

    def metadata(self, **more: Any) -> Json:
        """Of an object."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.labels,
            **({"ownerReferences": [self.owner]} if self.owner else {}),
            **more,
        }
