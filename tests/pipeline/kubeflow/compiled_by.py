"""Pipelines compiled by TFX's runner and by ours."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from typing import Any

import yaml

PROJECT = pathlib.Path(__file__).parent / "csv_project"
ROOT = "minio://mlpipeline/points"

EVERYTHING = {
    "image": "registry/trainer@sha256:" + "0" * 64,
    "image_pull_policy": "IfNotPresent",
    "cpu": "1500m",
    "memory": "16Gi",
    "gpus": 2,
    "shared_memory": "8Gi",
    "volumes": [{"claim": "data", "path": "/data", "sub_path": "cifar"}],
    "node_selector": {"accelerator": "a100"},
    "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
    "env": {"NCCL_DEBUG": "INFO"},
    "secrets": [{"name": "store", "key": "accesskey", "env": "AWS_ACCESS_KEY_ID"}],
    "retries": 3,
    "timeout_seconds": 3600,
}
"""All that a step can be given."""


def points(data: str = "minio://data/points", resolver: bool = True) -> Any:
    """Somebody's pipeline."""
    spec = importlib.util.spec_from_file_location("csv_pipeline", PROJECT / "csv_pipeline.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("csv_pipeline", module)
    spec.loader.exec_module(module)
    return module.create_pipeline(data, ROOT, f"{ROOT}/serving", resolver)


def stock(
    pipeline: Any, folder: pathlib.Path, name: str = "stock.yaml", version: str = "2.1"
) -> dict[str, Any]:
    """As TFX's own runner compiles it; the file is in ``folder``."""
    from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner as runner

    config = runner.KubeflowV2DagRunnerConfig(
        default_image="registry/image:1", use_pipeline_spec_2_1=version == "2.1"
    )
    runner.KubeflowV2DagRunner(config, output_dir=str(folder), output_filename=name).run(pipeline)
    result: dict[str, Any] = yaml.safe_load((folder / name).read_text())
    return result


def ours(
    pipeline: Any, folder: pathlib.Path, name: str = "ours.yaml", **settings: Any
) -> dict[str, Any]:
    """As ours compiles it."""
    from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
    from stagecraft.pipeline.settings.kubeflow import KubeflowSettings

    compiled = KubeflowRunner(KubeflowSettings(**settings), str(folder), name).run(pipeline)
    assert compiled is not None
    return compiled


def pods(compiled: dict[str, Any]) -> dict[str, Any]:
    """The entries of a compiled pipeline's platform document, by executor label."""
    platforms = compiled.get("platformSpec", {}).get("platforms", {})
    entries: dict[str, Any] = (
        platforms.get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    )
    return entries


def emulated(folder: pathlib.Path) -> dict[str, str]:
    """States of all steps after an emulated run of ``ours.yaml``, of which none may fail."""
    from stagecraft.pipeline.kubeflow import document
    from stagecraft.pipeline.kubeflow.emulator.run import Run

    compiled = document.load(folder / "ours.yaml")
    run = Run(compiled, folder, compiled.arguments({}))
    run.run(parallel=2, on_event=lambda *_: None)
    logs = {
        name: how.log.read_text()[-2000:] if how.log.exists() else how.cause
        for name, how in run.ended.items()
        if how.state in ("failed", "interrupted")
    }
    assert not logs, "\n".join(logs.values())
    return {name: how.state for name, how in run.ended.items()}
