"""Settings of the topology; each strategy checks them. Imports no TensorFlow."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from stagecraft.common import settings
from stagecraft.common.errors import SettingError
from stagecraft.common.settings import Settings
from stagecraft.trainer_module import registries

_STEPS = re.compile(r"[1-9]\d*:[1-9]\d*")

_DEVICE = re.compile(r"/?(?:device:)?(cpu|gpu):(\d+)", re.IGNORECASE)


class ParallelSettings(Settings):
    """On which topology (``parallel:``)."""

    strategy: Annotated[str, AfterValidator(registries.STRATEGIES.known)] = Field(
        default="one_device", description="how the devices work together"
    )
    replicas: int = Field(
        default=1,
        ge=1,
        description="copies of the model on one host; each takes its part of the batch",
    )
    stages: int = Field(
        default=1,
        ge=1,
        description="parts of the model, each on its own device; more than 1 needs grid",
    )
    virtual_stages: int = Field(
        default=1,
        ge=1,
        description="parts of the model on the device of each stage, which take turns "
        "(interleaved 1f1b); more than 1 makes the bubble smaller, and copies more",
    )
    shards: int = Field(
        default=1,
        ge=1,
        description="devices of each stage, over which its large layers are split (tensor "
        "parallelism); more than 1 needs grid",
    )
    cuts: Literal["auto"] | tuple[str, ...] = Field(
        default="auto",
        description="where the model is cut: auto, or the last layer of each part except the "
        "final one, separated by commas; a part is a stage, or a virtual stage",
    )
    costs: Literal["flops", "measured"] = Field(
        default="flops",
        description="what cuts: auto balances across stages; flops: floating-point operations; "
        "measured: seconds on the device, timed before training",
    )
    memory_mb: int = Field(
        default=0,
        ge=0,
        description="limit of the predicted memory of a stage, in MB; 0: none",
    )
    microbatches: int = Field(
        default=1,
        ge=1,
        description="parts of a replica's examples, in different stages at the same time; more "
        "than 1 needs grid",
    )
    microbatch_schedule: Literal["1f1b", "gpipe"] = Field(
        default="1f1b",
        description="order of microbatches in a stage; 1f1b: one forward, one backward, keeps few "
        "activations; gpipe: all forward, then all backward, keeps all",
    )
    zero: int = Field(
        default=0,
        ge=0,
        le=1,
        description="1: the replicas of a stage divide the optimizer slots among them (ZeRO stage "
        "1); 0: each replica keeps all",
    )
    accumulate: int = Field(
        default=1,
        ge=1,
        description="accumulation steps: parts of a replica's examples, computed one after the "
        "other, for a batch that does not fit into memory",
    )
    devices: Literal["auto"] | tuple[str, ...] = Field(
        default="auto",
        description="devices of one worker, separated by commas: each replica's stages in order, "
        "each with its shards, such as GPU:2,GPU:0; auto: the first GPUs, or CPUs if there are "
        "none",
    )
    all_reduce: str = Field(
        default="auto",
        description="algorithm that sums gradients; mirrored supports nccl, hierarchical_copy and "
        "one_device, multi_worker_mirrored and grid support ring and nccl",
    )
    precision: Literal["auto", "float32", "float64", "mixed_bfloat16", "mixed_float16"] = Field(
        default="float32",
        description="dtype of the computation; mixed: 16 bits, with float32 weights; auto: "
        "mixed_bfloat16 if the device has it and a timed step is faster, otherwise float32",
    )
    jit: bool = Field(default=False, description="compile the model with XLA, each stage by itself")
    remat: bool = Field(
        default=False,
        description="recompute activations in the backward pass instead of keeping them: less "
        "memory, more time",
    )
    workers: int = Field(
        default=1,
        ge=1,
        description="processes that train together, each with its replicas and stages; more than 1 "
        "needs multi_worker_mirrored, parameter_server or grid",
    )
    ps: int = Field(
        default=1, ge=1, description="processes that hold the variables under parameter_server"
    )
    evaluator: bool = Field(
        default=False,
        description="whether one more process evaluates each new checkpoint while the others train",
    )
    launcher: Literal["auto", "in_process", "local", "kubernetes"] = Field(
        default="auto",
        description="what starts the processes; local: the Trainer, on this host; kubernetes: the "
        "Trainer step on Kubeflow, as a cluster job (kubeflow.job); in_process: another program, "
        "with TF_CONFIG for each; auto: local if there are several and TF_CONFIG is "
        "not set",
    )
    isolated: bool = Field(
        default=True,
        description="whether the processes that the Trainer starts on this host have a network of "
        "their own, which other users of the host do not reach, if all files are local and the "
        "system allows it; false: they can reach the network, as some callbacks need",
    )
    max_restarts: int = Field(
        default=3,
        ge=0,
        description="how often lost processes restart, from the newest checkpoint",
    )
    start_timeout_seconds: int = Field(
        default=300, ge=1, le=86_400, description="seconds within which the processes must connect"
    )
    silence_timeout_seconds: int = Field(
        default=10,
        ge=2,
        le=86_400,
        description="seconds after which a silent process counts as frozen",
    )
    timeline_step: int = Field(
        default=0,
        ge=0,
        description="step whose stage passes the timeline records (with grid); 0: none",
    )
    profile_steps: str = Field(
        default="",
        description="FIRST:LAST, such as 10:20: steps that TensorFlow profiles, for TensorBoard",
    )
    virtual_devices: int = Field(
        default=0, ge=0, description="logical CPU devices to create, for laptops and tests; 0: none"
    )

    @field_validator("profile_steps", mode="before")
    @classmethod
    def _refuse_sixties(cls, value: Any) -> Any:
        """YAML 1.1 reads 10:20 as 620: https://yaml.org/type/int.html."""
        if isinstance(value, int):
            raise SettingError(
                "parallel.profile_steps", value, "is a number in YAML", "quotes, such as '10:20'"
            )
        if isinstance(value, str) and value and not _STEPS.fullmatch(value):
            raise SettingError(
                "parallel.profile_steps",
                value,
                "is not a range FIRST:LAST of steps, which begin at 1",
                "a range such as 10:20",
            )
        return value

    @field_validator("cuts", mode="before")
    @classmethod
    def _parse_cuts(cls, value: Any) -> Any:
        """Accepts a list, its JSON, a comma-separated string, ``null`` (auto)."""
        return _names("parallel.cuts", value, "conv_1,conv_2") or "auto"

    @field_validator("devices", mode="before")
    @classmethod
    def _parse_devices(cls, value: Any) -> Any:
        """Accepts the forms that ``cuts`` accepts; ``/gpu:0`` and the like become ``GPU:0``."""
        return tuple(map(_device, _names("parallel.devices", value, "GPU:0,GPU:1"))) or "auto"

    @property
    def found(self) -> Any:
        """The :class:`~stagecraft.trainer_module.parallel.strategy.Strategy`."""
        return registries.STRATEGIES.get(self.strategy)

    @property
    def cut_names(self) -> tuple[str, ...]:
        """Names of the layers that end a stage, in order; () where they are chosen."""
        return () if self.cuts == "auto" else self.cuts

    @property
    def device_names(self) -> tuple[str, ...]:
        """Names, such as ``("GPU:0", "GPU:1")``, replica by replica; () for ``auto``."""
        return () if self.devices == "auto" else self.devices

    @property
    def devices_per_worker(self) -> int:
        """Number of devices of each worker."""
        return self.replicas * self.stages * self.shards

    @property
    def definite(self) -> ParallelSettings:
        """A copy with float32 for ``precision: auto``, for all but a training."""
        return self.model_copy(update={"precision": "float32"} if self.precision == "auto" else {})

    @property
    def model_parts(self) -> int:
        """Number of parts that the model is cut into; part p is on the device of stage p mod K."""
        return self.stages * self.virtual_stages

    @property
    def parts(self) -> int:
        """Number of equal parts of a global batch; only synchronous workers count."""
        workers = self.workers if self.found.in_step else 1
        return workers * self.replicas * self.accumulate * self.microbatches

    @model_validator(mode="after")
    def _check(self) -> ParallelSettings:
        self.found.check(self)
        return self


def _names(setting: str, value: Any, example: str) -> tuple[str, ...]:
    """The names in a setting; () for ``auto``."""
    if value is None:
        return ()
    use = f"{setting}: auto, or names such as {example}"
    given = value
    if isinstance(value, str):
        given = settings.json_of(value) if value.startswith("[") else value.split(",")
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
        raise SettingError(setting, value, "is not a list of names", use)
    names = tuple(name.strip() for name in given)
    if names == ("auto",):
        return ()
    if not all(names):
        shown = ",".join(names)
        raise SettingError(setting, shown, "has an empty name", use, shown=repr(shown))
    return names


def _device(name: str) -> str:
    match = _DEVICE.fullmatch(name)
    if not match:
        raise SettingError(
            "parallel.devices",
            name,
            "is not a device",
            "parallel.devices: auto, or names such as CPU:0 and GPU:1",
        )
    return f"{match[1].upper()}:{int(match[2])}"
