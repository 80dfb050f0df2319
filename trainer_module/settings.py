"""The settings of a training: what is trained, how, and on which topology.

Imports neither TensorFlow nor TFX: checking settings is instant.
"""

from __future__ import annotations

import difflib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from stagecraft.trainer_module.models import names

AUGMENTATIONS = ("crop", "flip", "cutout")

STRATEGIES = (
    "one_device",
    "mirrored",
    "central_storage",
    "multi_worker_mirrored",
    "parameter_server",
    "tpu",
    "grid",
)

AVAILABLE_STRATEGIES = ("one_device", "mirrored", "central_storage")


class Settings(BaseModel):
    """Base of every section: frozen, and an unknown key is refused with the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    near = difflib.get_close_matches(str(key), cls.model_fields, n=1)
                    hint = f"did you mean {near[0]!r}?" if near else ""
                    known = "known here: " + ", ".join(cls.model_fields)
                    raise ValueError(f"unknown setting {key!r}; {hint or known}")
        return data


class TrainSettings(Settings):
    """What is trained and how (``train:``)."""

    model: str = Field(
        "cnn",
        description="cnn, resnet20, resnet56, … (6n+2 layers), wide_resnet_DEPTH_WIDTH, or "
        "package.module:function returning a Keras model that gives logits [batch, classes]",
    )
    steps: int | None = Field(
        None, ge=1, description="optimizer steps; give this or epochs (neither: 10 epochs)"
    )
    epochs: float | None = Field(
        None, gt=0, description="passes over the train split; give this or steps"
    )
    batch_size: int = Field(128, ge=1, description="examples per optimizer step, over all devices")
    eval_batch_size: int = Field(500, ge=1, description="examples per evaluation batch")
    optimizer: Literal["sgd", "adamw"] = Field(
        "sgd", description="sgd (Nesterov momentum) or adamw, both with decoupled weight decay"
    )
    learning_rate: float = Field(0.02, gt=0, description="peak learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd")
    weight_decay: float = Field(
        5e-4,
        ge=0,
        description="decoupled weight decay per step, times the learning rate; kernels only",
    )
    schedule: Literal["constant", "cosine", "one_cycle"] = Field(
        "cosine", description="learning rate over the steps, after the warm-up"
    )
    warmup_steps: int = Field(
        0, ge=0, description="steps of linear warm-up; one_cycle: 0 means 30 % of all steps"
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of the target spread evenly over all classes"
    )
    ema_decay: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="decay of the moving average of the weights; 0 is off; when on, the averaged "
        "weights are the ones evaluated and exported",
    )
    augment: str = Field(
        "crop,flip", description="any of crop, flip, cutout, separated by commas; or none"
    )
    shuffle: Literal["auto", "memory", "stream"] = Field(
        "auto",
        description="memory: a full shuffle of examples held in memory; stream: shuffled files and "
        "a buffer; auto: memory up to memory_limit_mb",
    )
    memory_limit_mb: int = Field(
        1024, ge=1, description="largest train split, in MB, that auto holds in memory"
    )
    shuffle_buffer: int = Field(10_000, ge=1, description="examples in the buffer of stream")
    eval_every: int = Field(
        0, ge=0, description="steps between evaluations on the val split; 0: once an epoch"
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="seed of weights, order, augmentation and dropout"
    )

    @field_validator("model")
    @classmethod
    def _check_model(cls, value: str) -> str:
        names.parse(value)
        return value

    @field_validator("augment", mode="before")
    @classmethod
    def _parse_augment(cls, value: Any) -> Any:
        """Accepts a list, a comma-separated string, ``true`` (the default), ``false``, ``none``."""
        if value is True:
            return cls.model_fields["augment"].default
        if value is False or value is None or value in ("", "none", "false"):
            return "none"
        names = value.split(",") if isinstance(value, str) else list(value)
        names = [str(name).strip() for name in names]
        for name in names:
            if name not in AUGMENTATIONS:
                raise ValueError(
                    f"unknown augmentation {name!r}; any of {', '.join(AUGMENTATIONS)}, or none"
                )
        return ",".join(name for name in AUGMENTATIONS if name in names)

    @property
    def augmentations(self) -> tuple[str, ...]:
        """Names of the augmentations that are on, in the order in which they are applied."""
        return () if self.augment == "none" else tuple(self.augment.split(","))

    @model_validator(mode="after")
    def _check(self) -> TrainSettings:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give steps or epochs, not both; for example drop epochs")
        return self


class ParallelSettings(Settings):
    """On which topology (``parallel:``)."""

    strategy: Literal[
        "one_device",
        "mirrored",
        "central_storage",
        "multi_worker_mirrored",
        "parameter_server",
        "tpu",
        "grid",
    ] = Field("one_device", description="how the devices work together")
    replicas: int = Field(
        1, ge=1, description="copies of the model on one host, each with its part of the batch"
    )
    stages: int = Field(1, ge=1, description="parts of the model, each on its own device")
    workers: int = Field(1, ge=1, description="processes that train together")
    virtual_devices: int = Field(
        0, ge=0, description="logical CPU devices to make, for laptops and tests; 0: none"
    )

    @model_validator(mode="after")
    def _check(self) -> ParallelSettings:
        # Rule by rule, each naming the field and a value that would work.
        if self.strategy not in AVAILABLE_STRATEGIES:
            raise ValueError(
                f"strategy: {self.strategy!r} is not available yet; "
                f"use {', '.join(AVAILABLE_STRATEGIES[:-1])} or {AVAILABLE_STRATEGIES[-1]}"
            )
        if self.stages > 1:
            raise ValueError(f"stages: {self.stages} is not available yet; use stages: 1")
        if self.workers > 1:
            raise ValueError(f"workers: {self.workers} is not available yet; use workers: 1")
        if self.strategy == "one_device" and self.replicas > 1:
            raise ValueError(
                f"replicas: {self.replicas} needs several devices; use strategy: mirrored, "
                "or replicas: 1 with one_device"
            )
        if 0 < self.virtual_devices < self.replicas:
            raise ValueError(
                f"virtual_devices: {self.virtual_devices} is fewer than replicas: "
                f"{self.replicas}; use virtual_devices: {self.replicas}"
            )
        return self


class TrainingSettings(Settings):
    """Everything that ``run_fn`` is told; travels through TFX as typed execution properties."""

    train: TrainSettings = TrainSettings()
    parallel: ParallelSettings = ParallelSettings()

    @model_validator(mode="after")
    def _check(self) -> TrainingSettings:
        replicas = self.parallel.replicas
        if self.train.batch_size % replicas:
            fits = self.train.batch_size - self.train.batch_size % replicas or replicas
            raise ValueError(
                f"train.batch_size: {self.train.batch_size} is not divided by "
                f"parallel.replicas: {replicas}; use {fits}"
            )
        return self

    def flat(self) -> dict[str, int | float | str]:
        """``{"train_batch_size": 128, …}``; fields that are None are left out."""
        return {
            f"{section}_{name}": int(value) if isinstance(value, bool) else value
            for section, fields in self.model_dump(
                include=set(TrainingSettings.model_fields)
            ).items()
            for name, value in fields.items()
            if value is not None
        }

    @classmethod
    def from_flat(cls, flat: dict[str, Any]) -> TrainingSettings:
        """The inverse of :meth:`flat`. Raises pydantic's ValidationError on bad values."""
        nested: dict[str, dict[str, Any]] = {section: {} for section in cls.model_fields}
        for key, value in flat.items():
            section, _, name = key.partition("_")
            nested[section][name] = value
        return cls.model_validate(nested)
