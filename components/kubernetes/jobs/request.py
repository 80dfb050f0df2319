"""What a job is rendered from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stagecraft.components.kubernetes.job_settings import JobSettings
from stagecraft.components.kubernetes.pod_settings import PodSettings

Json = dict[str, Any]

PORT = 2222
"""That processes listen on: the training operator's default."""

PART_OF = "app.kubernetes.io/part-of"
JOB_LABEL = "stagecraft.dev/job"
"""Of each object and each pod of a training: the job's name."""


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
