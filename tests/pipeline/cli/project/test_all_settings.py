"""Each setting changes a project's pipeline as it changes that of ``stagecraft run``."""

from __future__ import annotations

import functools
import importlib
import pathlib
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pydantic
import pytest
from google.protobuf import json_format
from PIL import Image
from tfx.dsl.compiler.compiler import Compiler
from tfx.orchestration.pipeline import Pipeline

from stagecraft.components.kubernetes.jobs.settings import Secret, Toleration, Volume
from stagecraft.pipeline.cli.project import writing
from stagecraft.pipeline.kubeflow import compile as kubeflow
from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
from stagecraft.pipeline.pipeline import create_pipeline
from stagecraft.pipeline.settings import PipelineSettings, load
from stagecraft.pipeline.settings.kubeflow import Step
from stagecraft.pipeline.settings.tree import Threshold
from stagecraft.schemas import features
from stagecraft.trainer_module.settings.train import WarmStart


def leaves(model: type[pydantic.BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and annotation of each setting."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
            yield from leaves(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", kind


ALL = dict(leaves(PipelineSettings))


MANY = {
    "beam": pytest.mark.full,
    "parallel": pytest.mark.full,
    "parity": pytest.mark.full,
    "evaluate": pytest.mark.full,
    "data": pytest.mark.full,
    "kubeflow": pytest.mark.full,
    "train": pytest.mark.full,
}
"""Sections with many settings, and how seldom they are tested."""

VALUES: dict[str, Any] = {
    "task.name": "regression",
    "train.model": "resnet20",
    "train.initial_weights": "donor.keras",
    "train.warm_start": WarmStart(epochs=1.0),
    "transform.graph": "graph",
    "drift.max_distance": 0.3,
    "drift.max_skew": 0.3,
    "drift.features": {"label": 0.3},
    "train.optimizer": "adam",
    "parallel.strategy": "mirrored",
    "task.args": {"class_weights": {"disc": 2.0}},
    "train.augment": "crop",
    "train.callbacks": "keras.callbacks:TerminateOnNaN",
    "train.schedule": "constant",
    "train.loss": "categorical_hinge",
    "data.source": "download",
    "data.span": "7",
    "data.window": 2,
    "data.label": "coarse",
    "data.schema_file": features.DATASETS["cifar10"].schema_file,
    "beam.args": ("--job_name=mine",),
    "data.example_gen": "tfx.components.CsvExampleGen",
    "data.image_size": (16, 16),
    "data.preprocessing_fn": "stagecraft.trainer_module.preprocessing.preprocessing_fn",
    "evaluate.thresholds": {"loss": Threshold(max=1.5)},
    "evaluate.slices": ("id",),
    "beam.runner": "flink",
    "kubeflow.backend_version": "2.5",
    "kubeflow.pipeline_root": "s3://bucket/root",
    "kubeflow.steps": {"Trainer": Step(cpu="3")},
    "kubeflow.job.kind": "tfjob",
    "kubeflow.every_step.image": "mine:2",
    "kubeflow.every_step.cpu": "3",
    "kubeflow.every_step.memory": "3Gi",
    "kubeflow.every_step.shared_memory": "1Gi",
    "kubeflow.every_step.volumes": (Volume(claim="mine", path="/mine"),),
    "kubeflow.every_step.tolerations": (Toleration(key="gpu"),),
    "kubeflow.every_step.secrets": (Secret(name="mine", key="key", env="KEY"),),
}
"""Other values of settings that have rules; those of the others are made."""

JOB: dict[str, Any] = {
    "parallel.launcher": "kubernetes",
    "parallel.strategy": "multi_worker_mirrored",
    "parallel.workers": 2,
    "kubeflow.job.folder": "s3://bucket/jobs",
    "kubeflow.checkpoints": "s3://bucket/checkpoints",
}
NEEDS: dict[str, dict[str, Any]] = {
    "data.dataset": {"data.source": "download"},
    "data.span": {"data.source": "minio://data/{SPAN}"},
    "data.window": {"data.source": "minio://data/{SPAN}"},
    "data.label": {"data.source": "download", "data.dataset": "cifar100"},
    "data.example_gen": {"data.source": "folder"},
    "data.image_size": {"data.source": "photos"},
    "data.image_fit": {"data.source": "photos", "data.image_size": (8, 8)},
    "data.corrupt_images": {"data.source": "photos"},
    "kubeflow.every_step.gpu_resource": {"kubeflow.every_step.gpus": 1},
    **{name: JOB for name in ALL if name.startswith("kubeflow.job.")},
}
"""Settings without which another one has no effect."""


WITHOUT_EFFECT = {"kubeflow.backend_version"}
"""Only ``stagecraft lint`` and ``emulate`` read it."""


def changed(settings: pydantic.BaseModel, name: str, other: Any) -> Any:
    """The settings with another value of one of them; unchecked, since the rest stays as it is."""
    first, _, rest = name.partition(".")
    value = getattr(settings, first)
    new = changed(value, rest, other) if rest else other
    return settings.model_copy(update={first: new})


def another(name: str, value: Any, kind: Any) -> Any:
    """Another value of a setting."""
    if name in VALUES:
        return VALUES[name]
    options = [each for each in typing.get_args(kind) if each is not type(None)] or [kind]
    if typing.get_origin(options[0]) is Literal:
        options = [*typing.get_args(options[0])]
    if (
        typing.get_origin(kind) is Literal
        or typing.get_origin(options[0]) is Literal
        or all(isinstance(each, str) for each in options)
    ):
        return next(each for each in options if each != value)
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2 or 0.5
        case str():
            return f"{value}x"
        case tuple():
            return ("x",)
        case dict():
            return {"x": "1"}
    made = {int: 3, float: 0.5, str: "x"}
    return next((made[each] for each in options if each in made), {"x": "1"})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Pipeline]]:
    """``create_pipeline`` of a new project."""
    folder = tmp_path_factory.mktemp("project") / "trips"
    writing.write(folder, "cifar10")
    mine = {name: each for name, each in sys.modules.items() if name.split(".")[0] == "pipeline"}
    for name in mine:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("pipeline.pipeline").create_pipeline
    finally:
        sys.path.remove(str(folder))
        for name in [each for each in sys.modules if each.split(".")[0] == "pipeline"]:
            del sys.modules[name]
        sys.modules.update(mine)


def command(settings: PipelineSettings, output: str, engine: str) -> Pipeline:
    """What ``stagecraft compile`` and ``stagecraft run`` build."""
    if engine == "kubeflow":
        return kubeflow.create_pipeline(settings)
    return create_pipeline(settings, output)


def outcome(
    create: Callable[..., Pipeline], settings: PipelineSettings, folder: pathlib.Path, engine: str
) -> Any:
    """The compiled pipeline."""
    pipeline = create(settings, str(folder), engine)
    if engine == "kubeflow":
        return KubeflowRunner(settings.kubeflow).run(pipeline, write_out=False)
    return json_format.MessageToDict(Compiler().compile(pipeline))  # maps have no order


def section(name: str) -> str:
    return name.partition(".")[0] if "." in name else "the tree"


SECTIONS = sorted({section(name) for name in ALL})


@pytest.mark.parametrize(
    "part",
    [pytest.param(each, marks=MANY.get(each, ())) for each in SECTIONS],
)
def test_each_setting_counts_as_in_the_commands(project, tmp_path, monkeypatch, part):
    (tmp_path / "donor.keras").write_bytes(b"")
    (tmp_path / "graph" / "transform_fn").mkdir(parents=True)
    (tmp_path / "graph" / "transform_fn" / "saved_model.pb").write_bytes(b"")
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (9, 9)).save(tmp_path / "photos" / name / "1.png")
    monkeypatch.chdir(tmp_path)
    engine = "kubeflow" if part == "kubeflow" else "local"
    for name, kind in ALL.items():
        if section(name) != part:
            continue
        base = load("quickstart")
        for needed, value in NEEDS.get(name, {}).items():
            base = changed(base, needed, value)
        value = functools.reduce(getattr, name.split("."), base)
        other = another(name, value, kind)
        assert other != value, name
        before, theirs, ours = (
            outcome(create, settings, tmp_path, engine)
            for create, settings in (
                (command, base),
                (command, changed(base, name, other)),
                (project, changed(base, name, other)),
            )
        )
        assert ours == theirs, name
        assert (ours != before) is (name not in WITHOUT_EFFECT), name
