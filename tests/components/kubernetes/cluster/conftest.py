"""A Trainer's step that starts a job: real processes under emulated controllers."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from job_controllers import Cluster, controllers
from kube_api import KubeApi, kube_api
from tfx import types
from tfx.types import artifact_utils, standard_artifacts

from stagecraft.components.kubernetes import training
from stagecraft.components.kubernetes.job_settings import CLUSTER, ClusterSettings, JobSettings
from stagecraft.components.kubernetes.pod_settings import PodSettings, Secret, Volume
from stagecraft.components.trainer.component import RUN_FN
from stagecraft.components.trainer.executor import Executor
from stagecraft.trainer_module.settings import TrainingSettings

MODELS = pathlib.Path(__file__).resolve().parents[3] / "trainer_module"

TRAIN = {"model": "user_models:tiny", "batch_size": 8, "eval_batch_size": 5, "steps": 4}


@dataclasses.dataclass
class Step:
    """The Trainer's step: its artifacts, and what it is told."""

    folder: pathlib.Path
    inputs: dict[str, list[types.Artifact]]
    outputs: dict[str, list[types.Artifact]]

    @property
    def volume(self) -> pathlib.Path:
        return self.folder / "volume"

    @property
    def model(self) -> types.Artifact:
        [model] = self.outputs["model"]
        return model

    @property
    def job_folder(self) -> pathlib.Path:
        """Of the only training."""
        [folder] = (self.volume / "jobs").iterdir()
        return folder

    def run(
        self,
        parallel: dict[str, Any],
        train: dict[str, Any] | None = None,
        run_fn: str = RUN_FN,
    ) -> None:
        settings = TrainingSettings.model_validate(
            {"train": TRAIN | (train or {}), "parallel": {"launcher": "kubernetes"} | parallel}
        )
        Executor().Do(
            self.inputs,
            self.outputs,
            {
                **settings.flat(),
                "run_fn": run_fn,
                "checkpoint_root": str(self.volume / "checkpoints"),
                "code_fingerprint": "0123456789abcdef",
            },
        )


def artifact(kind: type[types.Artifact], uri: pathlib.Path) -> types.Artifact:
    made = kind()
    made.uri = str(uri)
    return made


@pytest.fixture
def server(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    with kube_api() as running:
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig(tmp_path / "kubeconfig")))
        monkeypatch.setenv("STAGECRAFT_NAMESPACE", running.namespace)
        monkeypatch.setattr(training, "POLL_SECONDS", 0.2)
        yield running


@pytest.fixture
def cluster(server: KubeApi) -> Iterator[Cluster]:
    with controllers(server) as running:
        yield running


@pytest.fixture
def step(
    training_data: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Step]:
    monkeypatch.setenv("PYTHONPATH", f"{MODELS}{os.pathsep}{pathlib.Path(__file__).parent}")
    monkeypatch.syspath_prepend(str(MODELS))

    def make(kind: str = "job", **job: Any) -> Step:
        volume = tmp_path / "volume"
        volume.mkdir(exist_ok=True)
        cluster = ClusterSettings(
            image="stagecraft:latest",
            job=JobSettings(kind=kind, folder=str(volume / "jobs"), **job),
            pod=PodSettings(
                volumes=(Volume(claim="training", path=str(volume)),),
                secrets=(Secret(name="secret", key="key", env="SECRET"),),
            ),
        )
        monkeypatch.setenv(CLUSTER, cluster.model_dump_json(exclude_defaults=True))
        examples = artifact(standard_artifacts.Examples, training_data.examples)
        examples.split_names = artifact_utils.encode_split_names(["train", "val", "eval"])
        return Step(
            tmp_path,
            {
                "examples": [examples],
                "transform_graph": [
                    artifact(standard_artifacts.TransformGraph, training_data.transform_graph)
                ],
                "schema": [artifact(standard_artifacts.Schema, training_data.schema)],
            },
            {
                "model": [artifact(standard_artifacts.Model, tmp_path / "model")],
                "model_run": [artifact(standard_artifacts.ModelRun, tmp_path / "model_run")],
            },
        )

    return make


@pytest.fixture
def aside() -> Iterator[Callable[..., concurrent.futures.Future[None]]]:
    """Calls a function in a thread."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield pool.submit
