"""The request for a training that runs as a cluster job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stagecraft.common import kubernetes_syntax
from stagecraft.common.errors import SettingError
from stagecraft.components.kubernetes.jobs.settings import (
    ClusterSettings,
    JobSettings,
    PodSettings,
)
from stagecraft.trainer_module.parallel.cluster import jobs
from stagecraft.trainer_module.parallel.settings import ParallelSettings

Json = dict[str, Any]
PORT = 2222  # of each process: the training operator's default
PART_OF = "app.kubernetes.io/part-of"
JOB_LABEL = "stagecraft.dev/job"  # label of each object and each pod of a training: the job's name
ROLES = ("chief", "worker", "ps", "evaluator")

_NAMES = (
    (
        "name",
        kubernetes_syntax.job,
        "is not a valid job name",
        "at most 40 characters of a-z, 0-9 and - that begin with a letter and end with a letter "
        "or digit, such as training-1",
    ),
    (
        "namespace",
        kubernetes_syntax.label,
        "is not a valid namespace",
        "at most 63 characters of a-z, 0-9 and - that begin and end with a letter or digit, such "
        "as kubeflow",
    ),
    (
        "kubeflow.job.queue",
        kubernetes_syntax.label_value,
        "is not a valid name of a LocalQueue",
        "a name such as training",
    ),
)
"""Setting, rule of its values, what is wrong with another value, and what works."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One training on a cluster; a SettingError where Kubernetes would refuse a name."""

    name: str  # of the job: a DNS label of at most 40 characters, the same for the same training
    namespace: str
    image: str
    command: tuple[str, ...]  # of each process; its environment tells the process its role
    processes: Mapping[str, int]
    """Number of processes of each role, in the order of ``parallel.cluster.jobs``."""
    serves: frozenset[str] = frozenset()
    """The roles that never end by themselves (parameter_server's workers and ps)."""
    max_restarts: int = 3  # of a lost process
    pod: PodSettings = dataclasses.field(default_factory=PodSettings)
    """Resources of each pod; a ps gets no GPUs, an evaluator one."""
    job: JobSettings = dataclasses.field(default_factory=JobSettings)
    owner: Json | None = None  # an owner reference: Kubernetes deletes the job with its owner

    def __post_init__(self) -> None:
        values = {"name": self.name, "namespace": self.namespace}
        for setting, rule, problem, use in _NAMES:
            value = values.get(setting, self.job.queue)
            if rule(value):
                raise SettingError(setting, repr(value), problem, use)
        known = [role for role in ROLES if self.processes.get(role, 0) > 0]
        if not known or list(self.processes) != known or not self.serves <= {*known}:
            raise ValueError(
                f"processes: {dict(self.processes)}, serves: {sorted(self.serves)}: expected "
                f"positive numbers of {', '.join(ROLES)}, in this order"
            )

    @classmethod
    def of_training(
        cls,
        parallel: ParallelSettings,
        cluster: ClusterSettings,
        *,
        name: str,
        namespace: str,
        folder: str,
        owner: Json | None = None,
    ) -> JobRequest:
        """The job that a topology needs; its processes look for their task in ``folder``."""
        return cls(
            name=name,
            namespace=namespace,
            image=cluster.image,
            command=("python", "-m", "stagecraft.components.kubernetes.worker", folder),
            processes=jobs(parallel) or {"worker": 1},
            serves=parallel.found.serves,
            max_restarts=parallel.max_restarts,
            pod=cluster.pod,
            job=cluster.job,
            owner=owner,
        )

    @property
    def count(self) -> int:
        """Number of all processes."""
        return sum(self.processes.values())

    @property
    def labels(self) -> dict[str, str]:
        """Labels of each object."""
        return {
            PART_OF: "stagecraft",
            JOB_LABEL: self.name,
            **({"kueue.x-k8s.io/queue-name": self.job.queue} if self.job.queue else {}),
        }

    def metadata(self) -> Json:
        """Metadata of each object."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.labels,
            **({"ownerReferences": [self.owner]} if self.owner else {}),
        }
