"""What Vertex AI has not of our settings, said before anything is compiled.

A step there is a CustomJob on a machine of its own, not a pod:
https://cloud.google.com/vertex-ai/docs/pipelines/machine-types and migrate-kfp.
"""

from __future__ import annotations

import re

from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings
from stagecraft.schemas.errors import UserError

_FIELDS = {
    "image_pull_policy": "fetches images by its own rules",
    "shared_memory": "does not let a step choose the size of /dev/shm",
    "volumes": "has no volumes: what steps share is in Cloud Storage",
    "node_selector": "has no nodes to select; it chooses a machine by cpu, memory and gpus",
    "tolerations": "has no nodes whose taints could be tolerated",
    "secrets": "has no Kubernetes secrets; its steps run as the job's service account",
    "timeout_seconds": "has no time limit for a step of a pipeline",
}

_GPUS = re.compile(r"[A-Z][A-Z0-9_]+")
"""Names of ``AcceleratorType`` in google-cloud-aiplatform. Only their form is checked: Vertex has
new ones more often than the client library has releases."""


def check(settings: PipelineSettings) -> None:
    """Refuses places that Vertex AI's steps do not reach.

    Raises:
        UserError: it names the setting, and a value that would work.
    """
    root = settings.kubeflow.pipeline_root
    if not root.startswith("gs://"):
        raise UserError(
            f"kubeflow.pipeline_root: {root}: Vertex AI keeps artifacts in Cloud Storage only; "
            "use an address such as gs://bucket/stagecraft."
        )
    serving = settings.push.directory
    if serving and not serving.startswith("gs://"):
        raise UserError(
            f"push.directory: {serving}: nobody finds it there, because the machine is gone when "
            "a step on Vertex AI has ended; use an address such as gs://bucket/serving, or leave "
            "it out."
        )
    checkpoints = settings.kubeflow.checkpoints
    if "://" in checkpoints:
        raise UserError(
            f"kubeflow.checkpoints: {checkpoints}: checkpoints need a file system; use a folder "
            "of the step's own machine, such as checkpoints."
        )
    if settings.parity.enabled:
        raise UserError(
            "parity.enabled: TFX's entrypoint, which runs the steps on Vertex AI, does not find "
            "the type of ParityGate's report; use parity.enabled: false, and 'stagecraft parity'."
        )
    source = settings.data.source
    if source not in ("sample", "download") and "://" not in source:
        raise UserError(
            f"data.source: {source}: a step on Vertex AI does not see this machine's files; use "
            "an address such as gs://bucket/cifar-10-binary.tar.gz, sample or download."
        )


def check_step(settings: KubeflowSettings, name: str) -> None:
    """Refuses what a step cannot be given.

    Raises:
        UserError: it names the setting.
    """
    wanted = settings.step(name)
    for field, why in _FIELDS.items():
        if getattr(wanted, field):
            raise UserError(f"{_setting(settings, name, field)}: Vertex AI {why}. Leave it out.")
    if wanted.gpus and not _GPUS.fullmatch(wanted.gpu_resource):
        raise UserError(
            f"{_setting(settings, name, 'gpu_resource')}: {wanted.gpu_resource!r}: Vertex AI has "
            "names of its own for accelerators; use one such as NVIDIA_TESLA_A100 or NVIDIA_L4."
        )
    for variable, value in wanted.env.items():
        if not value:
            raise UserError(
                f"{_setting(settings, name, 'env')}: {variable}: Vertex AI takes no variable "
                "without a value. Leave it out."
            )


def _setting(settings: KubeflowSettings, name: str, field: str) -> str:
    """The setting that a step's field comes from."""
    own = settings.steps.get(name)
    where = f"steps.{name}" if own and field in own.model_fields_set else "every_step"
    return f"kubeflow.{where}.{field}"
