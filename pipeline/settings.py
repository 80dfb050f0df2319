"""The whole tree of settings, its presets, files and overrides.

Imports neither TensorFlow, TFX, Beam nor Keras: ``--help`` and ``config`` are instant.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from stagecraft.components.example_gen import files
from stagecraft.pipeline.kubeflow.settings import KubeflowSettings
from stagecraft.schemas.errors import UserError
from stagecraft.schemas.features import DATASETS, SAMPLE, DataSet
from stagecraft.trainer_module.settings import (
    Settings,
    TrainingSettings,
)

PRESETS = pathlib.Path(__file__).resolve().parent / "presets"


_EXPECTED = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "expected a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "expected a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "expected true or false"),
    "string_type": "expected text",
    "string_pattern_mismatch": "expected text that matches {pattern}",
    "model_type": "expected settings below it, each a name and a value",
    "literal_error": "expected {expected}",
    "greater_than_equal": "expected {ge} or more",
    "greater_than": "expected more than {gt}",
    "less_than_equal": "expected {le} or less",
    "less_than": "expected less than {lt}",
}
"""Kind of pydantic's error -> what is said in its place (https://docs.pydantic.dev, Errors)."""


class SettingsError(Exception):
    """Settings that cannot be; the message names the field, the value and what would work."""


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
    def num_classes(self) -> int:
        """Of the labels that are learned."""
        return self._dataset.num_classes

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
        600.0, gt=0, description="how long one topology may take, in seconds"
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


def changes_as_yaml(settings: PipelineSettings) -> str:
    """The settings that are not the default, as a file for ``--config``."""
    changed = settings.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(changed, sort_keys=False, allow_unicode=True)


def presets() -> list[str]:
    """Names of the presets that come with the package."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load(config: str | None = None, overrides: tuple[str, ...] = ()) -> PipelineSettings:
    """Resolves a preset's name or a YAML file, with ``key.path=value`` overrides on top.

    Raises:
        SettingsError: no such preset or file, not YAML, or a value that cannot be.
    """
    tree = _read(config) if config else {}
    changed = [_parse(override) for override in overrides]
    _make_room(tree, changed)
    for override in changed:
        _apply(tree, override)
    try:
        return PipelineSettings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(_explain(error, config)) from None


def _read(config: str) -> dict[str, Any]:
    path = PRESETS / f"{config}.yaml" if config in presets() else pathlib.Path(config)
    try:
        tree = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingsError(
            f"{config}: {error.strerror or error}; give the path of a YAML file or one of the "
            f"presets {', '.join(presets())}"
        ) from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{config}: not YAML: {error}") from None
    if not isinstance(tree or {}, dict):
        raise SettingsError(f"{config}: expected sections such as 'train:', found {tree!r:.60}")
    return tree or {}


class _Override(NamedTuple):
    """A ``--set``."""

    text: str
    sections: list[str]
    name: str
    value: Any


def _parse(override: str) -> _Override:
    key, equals, text = override.partition("=")
    *sections, name = key.strip().split(".")
    if not equals or not name:
        raise SettingsError(f"--set {override}: expected key=value, such as train.steps=500")
    try:
        return _Override(override, sections, name, yaml.safe_load(text))
    except yaml.YAMLError:
        return _Override(override, sections, name, text)


def _make_room(tree: dict[str, Any], changed: Sequence[_Override]) -> None:
    """Steps and epochs say the same: one that is overridden with counts, not the file's other."""
    section = tree.get("train")
    if not isinstance(section, dict):
        return
    for override in changed:
        if override.sections == ["train"] and override.value is not None:
            section.pop({"steps": "epochs", "epochs": "steps"}.get(override.name, ""), None)


def _apply(tree: dict[str, Any], override: _Override) -> None:
    for section in override.sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise SettingsError(f"--set {override.text}: {section} is a value, not a section")
    tree[override.name] = override.value


def _explain(error: ValidationError, config: str | None) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        where = ".".join(str(part) for part in problem["loc"])
        told = _EXPECTED.get(problem["type"])
        message = problem["msg"].removeprefix("Value error, ")
        message = told.format(**problem.get("ctx", {})) if told else message
        given = problem["input"]
        shown = f" (given: {given!r})" if not isinstance(given, dict) and given is not None else ""
        lines.append(f"{where}: {message}{shown}" if where else message)
    return (f"{config}: " if config else "") + "; ".join(lines)
