"""The tree of settings, its presets, files and overrides. Imports nothing heavy."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import Field, field_validator, model_validator

from stagecraft.common import secrets
from stagecraft.common.errors import SettingError, nearest
from stagecraft.components.evaluator.evaluation import ACCURACY, metric_names
from stagecraft.pipeline.beam.settings import BeamSettings
from stagecraft.pipeline.settings import strict_yaml
from stagecraft.pipeline.settings.data import DataSettings
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings
from stagecraft.pipeline.settings.overrides import Override, parse
from stagecraft.pipeline.settings.strict_yaml import SettingsError
from stagecraft.pipeline.settings.validation import validate
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.settings import Settings, TrainingSettings

__all__ = ["PipelineSettings", "SettingsError", "load"]

PRESETS = pathlib.Path(__file__).resolve().parent / "presets"


class TransformSettings(Settings):
    """The transformation of raw features (``transform:``)."""

    materialize: bool = Field(
        False, description="also write the transformed examples, instead of transforming on the fly"
    )
    graph: str | None = Field(
        None,
        description="folder of a pushed model, a checkpoint or a transform_graph, whose Transform "
        "graph transforms the data, instead of a new one",
    )

    @model_validator(mode="after")
    def _check_graph(self) -> TransformSettings:
        if self.graph and self.materialize:
            raise SettingError(
                "transform.materialize", True, "needs a new Transform graph", "materialize: false"
            )
        return self


class Threshold(Settings):
    """Bounds of a metric (``evaluate.thresholds``)."""

    min: float | None = Field(None, description="minimum of the metric for a blessing")
    max: float | None = Field(None, description="maximum of the metric for a blessing")

    @model_validator(mode="after")
    def _check(self) -> Threshold:
        if self.min is None and self.max is None:
            raise ValueError("expected min, max, or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise SettingError("min", self.min, f"is above max: {self.max:g}", "min below max")
        return self


class EvaluateSettings(Settings):
    """Conditions of the blessing (``evaluate:``)."""

    min_accuracy: float = Field(
        0.0, ge=0, le=1, description="minimum accuracy on the eval split for a blessing"
    )
    better_than_constant: bool = Field(
        True,
        description="also require that, with 95 % confidence, the model is better than always "
        "giving the best constant answer, such as the most frequent class or the mean of the label",
    )
    not_worse: bool = Field(
        True,
        description="also require that the model is not worse than the last blessed model, if any; "
        "a run whose model cannot be compared with it fails",
    )
    thresholds: dict[str, Threshold] = Field(
        {},
        description="mapping from metric of the task to its bounds: min, max, or both, such as "
        "{mse: {max: 1.5}}",
    )
    slices: tuple[str, ...] = Field(
        (), description="list of features; the Evaluator also computes the metrics for each value"
    )

    def check_metrics(self, task: Task) -> None:
        """Checks that the task has the metrics.

        Raises:
            SettingError: it has not.
        """
        task.check_metrics()
        known = metric_names(task)
        for name in self.thresholds:
            if name not in known:
                problem = f"is no metric of task.name: {task.name}"
                raise SettingError("evaluate.thresholds", name, problem, nearest(name, known))
        if self.min_accuracy and (ACCURACY not in known or ACCURACY in self.thresholds):
            other = "evaluate.thresholds has accuracy, too"
            none = f"task.name: {task.name} has no accuracy"
            raise SettingError(
                "evaluate.min_accuracy",
                self.min_accuracy,
                f"cannot be used, because {other if ACCURACY in known else none}",
                f"evaluate.thresholds for {', '.join(known)}",
            )


class DriftSettings(Settings):
    """Comparison of the data with those of the last run (``drift:``).

    A distance is a number between 0 and 1: for a category, the largest difference of the share of a
    value; for a number, the Jensen-Shannon divergence.
    """

    max_distance: float | None = Field(
        None,
        gt=0,
        le=1,
        description="maximum distance of each feature of the task, and the label, from the last "
        "run whose data passed, between 0 and 1: the largest difference of a category's shares, or "
        "the Jensen-Shannon divergence of a number; a run beyond it stops; null: not compared",
    )
    max_skew: float | None = Field(
        None,
        gt=0,
        le=1,
        description="the same for the distance of the other splits from the train split",
    )
    features: dict[str, float] = Field(
        {},
        description="mapping from feature to its own maximum, between 0 and 1, in place of "
        "max_distance and max_skew; without max_skew, the splits are not compared",
    )

    @field_validator("features")
    @classmethod
    def _check_features(cls, value: dict[str, float]) -> dict[str, float]:
        for name, limit in value.items():
            if not 0 < limit <= 1:
                problem = f"is no distance for {name!r}"
                raise SettingError("drift.features", limit, problem, "0.3")
        return value

    @property
    def looks_back(self) -> bool:
        """Whether a run is compared with an earlier one."""
        return self.max_distance is not None or bool(self.features)


class PushSettings(Settings):
    """The destination of blessed models (``push:``)."""

    directory: str | None = Field(
        None,
        description="folder of numbered model versions; default: OUTPUT/serving, and on Kubeflow "
        "serving/NAME below kubeflow.pipeline_root",
    )
    keep: int | None = Field(
        None,
        ge=1,
        description="number of versions of this pipeline that stay in the folder; null: all. The "
        "model that a new one is compared with, and versions that a user rolled back to, stay, too",
    )
    warmup: int = Field(
        0,
        ge=0,
        le=100,
        description="number of examples in the warm-up requests that a pushed version has for "
        "TensorFlow Serving; 0: none",
    )


class ParitySettings(Settings):
    """The proof that the topology computes what one device computes (``parity:``)."""

    enabled: bool = Field(
        False,
        description="check the topology before each training run, in the component ParityGate",
    )
    steps: int = Field(20, ge=4, description="optimizer steps of the compared trajectories")
    batch_size: int = Field(
        24,
        ge=2,
        description="minimum examples per step; the topology may round it up",
    )
    timeout_seconds: float = Field(
        600.0, gt=0, le=86_400, description="time limit for one topology, in seconds"
    )


class ReportSettings(Settings):
    """The report about a run (``report:``)."""

    enabled: bool = Field(
        True, description="write the report at the end of the run, in the component TrainingReport"
    )


class PipelineSettings(TrainingSettings):
    """The tree of all settings."""

    name: str = Field(
        "stagecraft",
        pattern=r"^[a-z][a-z0-9-]{0,62}$",
        description="name of the pipeline, in ML Metadata and in messages",
    )
    data: DataSettings = DataSettings()
    transform: TransformSettings = TransformSettings()
    drift: DriftSettings = DriftSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    push: PushSettings = PushSettings()
    parity: ParitySettings = ParitySettings()
    report: ReportSettings = ReportSettings()
    beam: BeamSettings = BeamSettings()
    kubeflow: KubeflowSettings = KubeflowSettings()

    @model_validator(mode="after")
    def _check_metrics(self) -> PipelineSettings:
        self.evaluate.check_metrics(self.task.found)
        return self

    @model_validator(mode="after")
    def _check_data(self) -> PipelineSettings:
        self.data.check_task(self.task)
        return self

    @model_validator(mode="after")
    def _check_window(self) -> PipelineSettings:
        weights, size = self.train.window_weights, self.data.window
        if not weights:
            return self
        setting, shown = "train.window_weights", list(weights)
        if size == 1:
            use = f"data.window: {len(weights)}" if len(weights) > 1 else "data.window: 3"
            raise SettingError(setting, shown, "has no effect without data.window", use)
        if len(weights) != size:
            problem = f"is not one number for each span of data.window: {size}"
            raise SettingError(setting, shown, problem, f"{size} numbers")
        if self.transform.materialize:
            problem = "needs examples that know their span, and those of Transform do not"
            raise SettingError(setting, shown, problem, "transform.materialize: false")
        return self

    @property
    def schema_path(self) -> str | None:
        """Path of the schema that the data must match; None: it is inferred."""
        return self.data.schema_of(self.task.found)


def recorded(settings: PipelineSettings) -> dict[str, Any]:
    """The settings that reports and ML Metadata record: without ``kubeflow`` and secrets."""
    return without_secrets(settings.model_dump(mode="json"))


def changes_as_yaml(settings: PipelineSettings) -> str:
    """The recorded settings that differ from the defaults, as a file for ``--config``."""
    changed = without_secrets(settings.model_dump(mode="json", exclude_defaults=True))
    return yaml.safe_dump(changed, sort_keys=False, allow_unicode=True)


def without_secrets(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON tree without ``kubeflow``, which does not affect results, and without secrets."""
    kept = {name: value for name, value in tree.items() if name != "kubeflow"}
    result: dict[str, Any] = secrets.redact_tree(kept)
    beam = kept.get("beam")
    for name in ("args", "unchecked_args"):
        if isinstance(beam, dict) and isinstance(beam.get(name), (list, tuple)):
            hidden = secrets.redact_arguments(beam[name], all_values=True)
            result["beam"][name] = list(hidden)
    return result


def presets() -> list[str]:
    """Names of the package's presets."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load(config: str | None = None, overrides: Sequence[str | Override] = ()) -> PipelineSettings:
    """Loads a preset or a YAML file, and applies overrides.

    Args:
        config: name of a preset, or path of a file.
        overrides: ``key.path=value``, or the setting that an option stands for.

    Raises:
        SettingsError: no such preset or file, no YAML, or a wrong value.
    """
    tree = _read(config) if config else {}
    parsed = [parse(each) if isinstance(each, str) else each for each in overrides]
    return validate(PipelineSettings, tree, parsed, config)


def _read(config: str) -> dict[str, Any]:
    path = PRESETS / f"{config}.yaml" if config in presets() else pathlib.Path(config)
    try:
        tree = strict_yaml.read(path)
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"{config}: {reason}; use the path of a YAML file, or one of the presets "
            f"{', '.join(presets())}",
            setting="--config",
            value=config,
            file=config,
        ) from None
    if tree is None:
        raise SettingsError(
            f"{config}: is empty; expected sections such as 'train:', or {{}} for the defaults",
            file=config,
        )
    if not isinstance(tree, dict):
        shown = secrets.redact(f"{tree!r:.60}")
        raise SettingsError(
            f"{config}: expected sections such as 'train:', found {shown}", file=config
        )
    return tree
