"""The whole tree of settings, its presets, files and overrides.

Imports neither TensorFlow, TFX, Beam nor Keras: ``--help`` and ``config`` are instant.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from stagecraft.components.example_gen.archives import files
from stagecraft.pipeline.settings import strict_yaml
from stagecraft.pipeline.settings.errors import SettingsError
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings
from stagecraft.pipeline.settings.overrides import Override, parse
from stagecraft.pipeline.settings.validation import made
from stagecraft.schemas import secrets
from stagecraft.schemas.errors import UserError
from stagecraft.schemas.features import DATASETS, SAMPLE, DataSet
from stagecraft.trainer_module.settings import Settings, TrainingSettings

__all__ = ["PipelineSettings", "SettingsError", "load"]

PRESETS = pathlib.Path(__file__).resolve().parent / "presets"


class DataSettings(Settings):
    """What is read (``data:``)."""

    source: str = Field(
        "sample",
        description="sample (generated, no network), download (the published archive), or an "
        "archive (.tar.gz) or a folder with its files: a path, or a gs://, s3:// or minio:// "
        "address",
    )
    dataset: Literal["cifar10", "cifar100"] = Field("cifar10", description="which layout it has")
    label: Literal["fine", "coarse"] = Field(
        "fine", description="which of CIFAR-100's two labels is learned"
    )
    val_fraction: float = Field(
        0.1, gt=0, le=0.5, description="share of the train part held out as the val split"
    )
    shards: int = Field(
        48,
        ge=1,
        description="files per split; fixed, so that another number of workers changes no data",
    )
    sample_train: int = Field(5_000, ge=10, description="pictures in the sample's train part")
    sample_test: int = Field(1_000, ge=10, description="pictures in the sample's test part")
    cache_dir: str = Field(
        "~/.cache/stagecraft", description="where downloads are kept between runs"
    )
    schema_file: str | None = Field(
        None, description="TFDV schema (text proto) to hold the data against; default: dataset's"
    )

    @field_validator("source")
    @classmethod
    def _check_scheme(cls, value: str) -> str:
        try:
            files.check_scheme(value)
        except UserError as error:
            raise ValueError(str(error)) from None
        return value

    @model_validator(mode="after")
    def _check(self) -> DataSettings:
        if self.dataset == "cifar10" and self.label == "coarse":
            raise ValueError("label: coarse exists in cifar100 only; use dataset: cifar100")
        if self.source == "sample" and self.dataset != "cifar10":
            raise ValueError("source: the sample has ten classes; use dataset: cifar10")
        return self

    @property
    def dataset_name(self) -> str:
        """Key of ``stagecraft.schemas.features.DATASETS``."""
        return "cifar100_coarse" if self.label == "coarse" else self.dataset

    @property
    def schema_path(self) -> str:
        """Path of the schema that the data is held against."""
        return self.schema_file or self._dataset.schema_file

    @property
    def _dataset(self) -> DataSet:
        return SAMPLE if self.source == "sample" else DATASETS[self.dataset_name]


class TransformSettings(Settings):
    """How raw features become the model's (``transform:``)."""

    materialize: bool = Field(
        False, description="write the transformed examples too, instead of applying it on the fly"
    )


class EvaluateSettings(Settings):
    """When a model is good enough (``evaluate:``)."""

    min_accuracy: float = Field(
        0.0, ge=0, le=1, description="accuracy on the eval split below which nothing is pushed"
    )
    better_than_constant: bool = Field(
        True,
        description="also require that the model is better, with 95 % confidence, than always "
        "answering the most frequent class of the eval split",
    )
    not_worse: bool = Field(
        True, description="also compare with the last blessed model, if there is one"
    )


class PushSettings(Settings):
    """Where a blessed model goes (``push:``)."""

    directory: str | None = Field(
        None,
        description="folder of numbered model versions; default: OUTPUT/serving, and on Kubeflow "
        "serving/NAME below kubeflow.pipeline_root",
    )


class ParitySettings(Settings):
    """The proof that the topology computes what one device does (``parity:``)."""

    enabled: bool = Field(
        False, description="prove it before every training, with the component ParityGate"
    )
    steps: int = Field(20, ge=4, description="optimizer steps of the compared trajectories")
    batch_size: int = Field(
        24,
        ge=2,
        description="least examples per step; rounded up to what the topology divides",
    )
    timeout_seconds: float = Field(
        600.0, gt=0, le=86_400, description="how long one topology may take, in seconds"
    )


class ReportSettings(Settings):
    """The page about a run (``report:``)."""

    enabled: bool = Field(
        True, description="write it at the end of the run, with the component TrainingReport"
    )


class BeamSettings(Settings):
    """Where the data steps run (``beam:``)."""

    runner: Literal["direct", "flink", "spark", "dataflow"] = Field(
        "direct", description="direct runs in this process; the others need their cluster"
    )
    args: tuple[str, ...] = Field(
        (), description='further pipeline arguments, such as "--flink_master=localhost:8081"'
    )


class PipelineSettings(TrainingSettings):
    """The whole tree."""

    name: str = Field(
        "stagecraft",
        pattern=r"^[a-z][a-z0-9-]{0,62}$",
        description="name of the pipeline, in ML Metadata and on screen",
    )
    data: DataSettings = DataSettings()
    transform: TransformSettings = TransformSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    push: PushSettings = PushSettings()
    parity: ParitySettings = ParitySettings()
    report: ReportSettings = ReportSettings()
    beam: BeamSettings = BeamSettings()
    kubeflow: KubeflowSettings = KubeflowSettings()


def recorded(settings: PipelineSettings) -> dict[str, Any]:
    """The settings as reports and ML Metadata have them: without ``kubeflow`` and secrets."""
    return without_secrets(settings.model_dump(mode="json"))


def changes_as_yaml(settings: PipelineSettings) -> str:
    """Those of :func:`recorded` that are not the default, as a file for ``--config``."""
    changed = without_secrets(settings.model_dump(mode="json", exclude_defaults=True))
    return yaml.safe_dump(changed, sort_keys=False, allow_unicode=True)


def without_secrets(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A tree of settings, as JSON has it, without what no record is to hold.

    That is ``kubeflow``, which changes nothing of what is computed and holds a cluster's
    addresses and variables; and of ``beam.args`` the values, as any may be a runner's secret.
    """
    kept = {name: value for name, value in tree.items() if name != "kubeflow"}
    result: dict[str, Any] = secrets.redact_tree(kept)
    beam = kept.get("beam")
    if isinstance(beam, dict) and isinstance(beam.get("args"), (list, tuple)):
        hidden = secrets.redact_arguments(beam["args"], all_values=True)
        result["beam"]["args"] = list(hidden)
    return result


def presets() -> list[str]:
    """Names of the presets that come with the package."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load(config: str | None = None, overrides: Sequence[str | Override] = ()) -> PipelineSettings:
    """Resolves a preset's name or a YAML file, with overrides on top.

    Args:
        config: name of a preset, or path of a file.
        overrides: ``key.path=value``, or what an option of a command stands for.

    Raises:
        SettingsError: no such preset or file, not YAML, or a value that cannot be.
    """
    tree = _read(config) if config else {}
    given = [parse(each) if isinstance(each, str) else each for each in overrides]
    return made(PipelineSettings, tree, given, config)


def _read(config: str) -> dict[str, Any]:
    path = PRESETS / f"{config}.yaml" if config in presets() else pathlib.Path(config)
    try:
        tree = strict_yaml.read(path)
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"{config}: {reason}; give the path of a YAML file or one of the presets "
            f"{', '.join(presets())}"
        ) from None
    except strict_yaml.FileError as error:
        raise SettingsError(str(error)) from None
    if tree is None:
        raise SettingsError(
            f"{config}: is empty; expected sections such as 'train:', or {{}} for the defaults"
        )
    if not isinstance(tree, dict):
        shown = secrets.redact(f"{tree!r:.60}")
        raise SettingsError(f"{config}: expected sections such as 'train:', found {shown}")
    return tree
