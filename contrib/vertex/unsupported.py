"""Refuses settings that Vertex AI does not support.

A step there is a CustomJob on its own machine, not a pod:
https://cloud.google.com/vertex-ai/docs/pipelines/machine-types and migrate-kfp.
"""

from __future__ import annotations

import re

from stagecraft.common.errors import SettingError, UserError
from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings

_FIELDS = {
    "image_pull_policy": "has its own policy for pulling images",
    "shared_memory": "does not let a step choose the size of /dev/shm",
    "volumes": "has no volumes; steps share data in Cloud Storage",
    "node_selector": "has no nodes to select; it chooses a machine by cpu, memory and gpus",
    "tolerations": "has no nodes with taints",
    "secrets": "has no Kubernetes secrets; its steps run as the job's service account",
    "timeout_seconds": "has no time limit for a step of a pipeline",
}

_GPUS = re.compile(r"[A-Z][A-Z0-9_]+")
"""Names of ``AcceleratorType`` in google-cloud-aiplatform. Only their form is checked: Vertex AI
adds accelerators more often than the client library has releases."""


def check(settings: PipelineSettings) -> None:
    """Refuses paths that Vertex AI's steps do not reach."""
    root = settings.kubeflow.pipeline_root
    if not root.startswith("gs://"):
        raise SettingError(
            "kubeflow.pipeline_root",
            root,
            "is not in Cloud Storage, where Vertex AI stores artifacts",
            "a URI such as gs://bucket/stagecraft",
        )
    serving = settings.push.directory
    if serving and not serving.startswith("gs://"):
        raise SettingError(
            "push.directory",
            serving,
            "is on the step's machine, which Vertex AI deletes after the step",
            "a URI such as gs://bucket/serving, or remove the setting",
        )
    checkpoints = settings.kubeflow.checkpoints
    if "://" in checkpoints:
        raise SettingError(
            "kubeflow.checkpoints",
            checkpoints,
            "is a URI, but checkpoints on Vertex AI need a local folder",
            "a folder on the step's machine, such as checkpoints",
        )
    if settings.parity.enabled:
        raise SettingError(
            "parity.enabled",
            "true",
            "is not supported on Vertex AI: TFX's entrypoint does not find the type of "
            "ParityGate's report",
            "parity.enabled: false, and 'stagecraft parity'",
        )
    if choice := settings.train.base_model:
        raise SettingError(
            "train.initial_weights",
            choice,
            "is not supported on Vertex AI, which runs TFX's own resolvers alone",
            "a path in the container image",
        )
    source = settings.data.source
    if settings.data.has_spans:
        raise SettingError(
            "data.source",
            source,
            "has spans, which TFX's entrypoint on Vertex AI does not find there",
            "the address of one span",
        )
    packaged = source.startswith("package:")  # in the image, too
    if source not in ("sample", "download") and "://" not in source and not packaged:
        raise SettingError(
            "data.source",
            source,
            "is on this machine, which a step on Vertex AI cannot reach",
            "a URI (such as gs://bucket/cifar-10-binary.tar.gz), 'sample', or 'download'",
        )


def check_step(settings: KubeflowSettings, name: str) -> None:
    """Refuses settings of a step."""
    wanted = settings.step(name)
    for field, why in _FIELDS.items():
        if value := getattr(wanted, field):
            setting = _setting(settings, name, field)
            message = f"{setting}: Vertex AI {why}. Remove this setting."
            raise UserError(message, setting=setting, value=value)
    if wanted.gpus and not _GPUS.fullmatch(wanted.gpu_resource):
        raise SettingError(
            _setting(settings, name, "gpu_resource"),
            wanted.gpu_resource,
            "is not one of Vertex AI's accelerators",
            "a name such as NVIDIA_TESLA_A100 or NVIDIA_L4",
        )
    for variable, value in wanted.env.items():
        if not value:
            raise SettingError(
                _setting(settings, name, "env"),
                variable,
                "has no value, but Vertex AI requires one; remove the variable",
            )


def _setting(settings: KubeflowSettings, name: str, field: str) -> str:
    """The setting of a step's field."""
    own = settings.steps.get(name)
    where = f"steps.{name}" if own and field in own.model_fields_set else "every_step"
    return f"kubeflow.{where}.{field}"
