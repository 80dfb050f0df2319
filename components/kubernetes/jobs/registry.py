"""The kinds of cluster jobs: ``kubeflow.job.kind``.

Another package adds a kind with an entry point of the group ``stagecraft.cluster_jobs``. Its object
is an instance of :class:`~stagecraft.components.kubernetes.jobs.cluster_job.ClusterJob`.
"""

from __future__ import annotations

from stagecraft.schemas.registry import Registry

CLUSTER_JOBS = Registry(
    "stagecraft.components.kubernetes.jobs.cluster_job:ClusterJob",
    "kubeflow.job.kind",
    "stagecraft.components.kubernetes.jobs.kinds",
    "stagecraft.cluster_jobs",
)
