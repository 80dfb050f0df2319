"""The settings of model, optimizer and data, their checks, and values that follow from them.

Imports no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from stagecraft.common import settings
from stagecraft.common.errors import SettingError
from stagecraft.common.registry import Entry
from stagecraft.common.settings import Settings
from stagecraft.trainer_module import hub, registries

DEFAULT_EPOCHS = 10.0
"""Used if the settings have neither steps nor epochs."""

LAST_BLESSED, LAST_PUSHED, RUN = "last_blessed", "last_pushed", "run:"
"""Values of ``initial_weights``, or the start of one, that name the model of an earlier run."""


def names_a_run(initial_weights: str) -> bool:
    """Whether initial weights are those of an earlier run, which a pipeline resolves."""
    return initial_weights in (LAST_BLESSED, LAST_PUSHED) or initial_weights.startswith(RUN)


class WarmStart(Settings):
    """Settings of a training run that starts from weights (``train.warm_start:``)."""

    is_recorded = True

    steps: int | None = Field(None, ge=1, description="optimizer steps; set this or epochs")
    epochs: float | None = Field(
        None, gt=0, le=1e6, description="passes over the train split; set this or steps"
    )
    learning_rate: float | None = Field(None, gt=0, description="peak learning rate")
    optimizer_state: bool = Field(
        False,
        description="also continue the optimizer's state, the moving averages and the count of "
        "steps of that training run, which also had this setting",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise SettingError(
                "train.warm_start.steps",
                self.steps,
                f"and train.warm_start.epochs: {self.epochs:g} exclude each other",
                "one of them",
            )
        return self


_PARSERS: Mapping[str, Callable[[str, Any], Any]] = {
    "model_args": settings.mapping,
    "optimizer_args": settings.mapping,
    "schedule_args": settings.mapping,
    "loss_args": settings.mapping,
    "learning_rate_multipliers": settings.factors,
    "freeze_after": settings.shares,
    "weight_decay_exclude": settings.patterns,
    "frozen": settings.patterns,
    "window_weights": settings.positive_numbers,
    "callbacks": settings.dotted_names,
}
"""Setting -> function that checks its value, or the text of it, which flat settings have."""


class TrainSettings(Settings):
    """Model, optimizer and data (``train:``)."""

    is_recorded = True

    model: str = Field(
        "cnn",
        description="a model of one of these families, keras_hub:CLASS for a class of KerasHub, or "
        "package.module:function returning a Keras model; for pictures, with logits "
        "[batch, classes]",
    )
    model_args: dict[str, Any] = Field(
        {},
        description="mapping of more arguments of your function, or of the class of KerasHub: "
        "preset (a folder), or backbone (its configuration); load_weights, download, lora_rank, "
        "lora_targets",
    )
    initial_weights: str | None = Field(
        None,
        description="file or folder with initial weights, instead of random ones: .keras, "
        ".weights.h5, a preset of KerasHub (its folder), a checkpoint (…/checkpoints/KEY/391), a "
        "pushed model (…/serving/VERSION), or the checkpoint of an Estimator "
        "(…/model.ckpt-1000); or last_blessed, last_pushed or run:ID: the model of an earlier run "
        "of this pipeline; if there is none yet, the weights are random",
    )
    warm_start: WarmStart | None = Field(
        None,
        description="settings of a training run that starts from initial_weights, in place of "
        "those of a run from random weights: steps or epochs, learning_rate, and optimizer_state: "
        "true, which also continues the optimizer's state, the moving averages and the count of "
        "steps. Vocabularies may grow, and the scale of numbers may change",
    )
    initial_weights_skip: tuple[str, ...] = Field(
        (),
        description="variables not to load from initial_weights: paths (head) or patterns "
        "(*/bias), separated by commas",
    )
    steps: int | None = Field(
        None, ge=1, description="optimizer steps; set this or epochs (neither: 10 epochs)"
    )
    epochs: float | None = Field(
        None, gt=0, le=1e6, description="passes over the train split; set this or steps"
    )
    batch_size: int = Field(128, ge=1, description="examples per optimizer step, over all devices")
    eval_batch_size: int = Field(500, ge=1, description="examples per evaluation batch")
    optimizer: str = Field(
        "sgd",
        description="optimizer that updates the weights: one of these, or package.module:name of "
        "your own Keras optimizer, or of a function that returns one; for a table, the default is "
        "adamw, with learning_rate 0.003, schedule one_cycle, batch_size 32, 30 epochs and the "
        "model dnn_64_32",
    )
    optimizer_args: dict[str, Any] = Field(
        {},
        description="mapping of other arguments of the optimizer, such as {beta_1: 0.95}",
    )
    learning_rate: float = Field(0.02, gt=0, description="peak learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd, also in muon")
    weight_decay: float = Field(
        5e-4,
        ge=0,
        description="decoupled weight decay per step, times the learning rate; kernels only",
    )
    weight_decay_exclude: tuple[str, ...] = Field(
        (),
        description="list of regular expressions; kernels whose path matches have no weight decay",
    )
    learning_rate_multipliers: dict[str, float] = Field(
        {},
        description="mapping from regular expression to factor; the factor of the first expression "
        "that matches the path of a weight multiplies its learning rate",
    )
    frozen: tuple[str, ...] = Field(
        (),
        description="list of regular expressions; training does not change weights whose path "
        "matches, and a layer with no other weights runs in inference mode",
    )
    freeze_after: dict[str, float] = Field(
        {},
        description="mapping from regular expression to a share of all steps, between 0 and 1; "
        "after this share, training does not change weights whose path matches; the first "
        "expression that matches counts",
    )
    clip_norm: float = Field(
        0.0,
        ge=0,
        description="maximum global norm of all gradients; larger gradients are scaled down; 0: "
        "off",
    )
    clip_value: float | None = Field(
        None, gt=0, description="maximum absolute value of each entry of a gradient"
    )
    gradient_noise: float | None = Field(
        None,
        gt=0,
        description="eta of the Gaussian noise on the clipped gradients; its variance is "
        "eta / (1 + step)^0.55 (Neelakantan et al. 2015)",
    )
    schedule: str = Field(
        "cosine",
        description="learning rate over the steps, after the warm-up: one of these, or "
        "package.module:name of your own Keras LearningRateSchedule, or of a function that returns "
        "one",
    )
    schedule_args: dict[str, Any] = Field(
        {},
        description="mapping of arguments of a schedule of Keras, such as {decay_steps: 1000}",
    )
    warmup_steps: int = Field(
        0, ge=0, description="steps of linear warm-up; one_cycle: 0 means 30 % of all steps"
    )
    loss: str | dict[str, str] = Field(
        "task",
        description="loss of training and evaluations: one of these, or package.module:name "
        "of your own Keras loss, or of a function of targets and outputs; for a model with several "
        "outputs, a mapping from output to loss",
    )
    loss_args: dict[str, Any] = Field(
        {},
        description="mapping of arguments of the loss, such as {delta: 0.5}; for several outputs, "
        "a mapping from output to such mappings",
    )
    loss_weights: dict[str, float] = Field(
        {}, description="mapping from output of the model to the factor of its loss; default: 1"
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of the target spread evenly over all classes"
    )
    ema_decay: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="decay of the moving average of the weights, which is then evaluated and "
        "exported; 0: off",
    )
    lookahead: int | None = Field(
        None,
        ge=0,
        description="steps between two pulls of the weights to slow weights, which are evaluated "
        "and exported (Zhang et al. 2019); 0: off",
    )
    augment: tuple[str, ...] = Field(
        ("crop", "flip"),
        description="list of names; their order does not matter; none: no augmentation, which is "
        "the default for a task that does not augment",
    )
    mix_alpha: float = Field(
        1.0,
        gt=0,
        description="for mixup and cutmix: the share of an image in its mixture has the "
        "distribution Beta(mix_alpha, mix_alpha)",
    )
    test_time_augment: Literal["flip", "flip_translate"] | None = Field(
        None,
        description="the exported model averages its logits over views of a picture; flip: also "
        "the mirror image; flip_translate: six views, also moved by a pixel",
    )
    shuffle: Literal["auto", "memory", "stream"] = Field(
        "auto",
        description="memory: a full shuffle of examples held in memory; stream: shuffled files and "
        "a buffer; auto: memory up to memory_limit_mb",
    )
    memory_limit_mb: int = Field(
        1024, ge=1, description="maximum size, in MB, of a train split that auto holds in memory"
    )
    shuffle_buffer: int = Field(10_000, ge=1, description="examples in the buffer of stream")
    window_weights: tuple[float, ...] = Field(
        (),
        description="list of numbers, one for each span of data.window, the oldest first: the "
        "weight of the examples of this span in the loss, in relation to the others; default: all "
        "count alike",
    )
    eval_every: int = Field(
        0, ge=0, description="steps between evaluations on the val split; 0: once an epoch"
    )
    checkpoint_every: int = Field(
        0, ge=0, description="steps between checkpoints; 0: at each evaluation only"
    )
    early_stopping_patience: int | None = Field(
        None,
        ge=1,
        description="the training run stops after this number of evaluations without an "
        "improvement of the task's monitored metric",
    )
    callbacks: tuple[str, ...] = Field(
        (),
        description="list of package.module:Class; the chief calls their methods on_train_begin, "
        "on_step, on_epoch_end and on_train_end",
    )
    keep: int = Field(2, ge=1, description="newest checkpoints to keep, besides the best one")
    resume_id: str = Field(
        "default",
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="separates training runs on the same data and code: each resumes from its own "
        "checkpoints",
    )
    export_keras: bool = Field(
        False, description="also export the model as assets.extra/model.keras"
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="seed of weights, order, augmentation and dropout"
    )

    @field_validator("model")
    @classmethod
    def _check_model(cls, value: str) -> str:
        registries.model_family(value)
        return value

    @field_validator("optimizer", "schedule")
    @classmethod
    def _check_entry(cls, value: str, info: ValidationInfo) -> str:
        entry: Entry = registries.BY_SETTING[f"train.{info.field_name}"].get(value)
        return entry.name

    @field_validator("loss", mode="before")
    @classmethod
    def _parse_loss(cls, value: Any) -> Any:
        """Accepts a name, a mapping, or its JSON."""
        named = registries.losses(value)
        return named.get("") or named

    @field_validator(*_PARSERS, mode="before")
    @classmethod
    def _parse(cls, value: Any, info: ValidationInfo) -> Any:
        """Accepts a mapping or a list, or its text."""
        name = info.field_name or ""
        return _PARSERS[name](f"train.{name}", value)

    @field_validator("loss_weights", mode="before")
    @classmethod
    def _parse_weights(cls, value: Any) -> Any:
        """Accepts a mapping from outputs to numbers, or its JSON."""
        weights = settings.mapping("train.loss_weights", value)
        for output, weight in weights.items():
            if not isinstance(weight, (int, float)):
                raise _misfit("loss_weights", output, "a number")
        return weights

    @field_validator("initial_weights")
    @classmethod
    def _check_initial_weights(cls, value: str | None) -> str | None:
        if value is not None and "://" in value:
            raise SettingError(
                "train.initial_weights",
                value,
                "is a URI, but a training run loads weights only from files",
                "a path that all processes can read, in the container image or on a volume",
            )
        if value == RUN:
            problem = "names no run"
            raise SettingError("train.initial_weights", value, problem, "run:ID of `history`")
        return value or None

    @field_validator("warm_start", mode="before")
    @classmethod
    def _parse_warm_start(cls, value: Any) -> Any:
        """Accepts a mapping, or its JSON."""
        is_text = isinstance(value, str)
        return settings.mapping("train.warm_start", value) or None if is_text else value

    @field_validator("initial_weights_skip", mode="before")
    @classmethod
    def _parse_skip(cls, value: Any) -> Any:
        """Accepts a list, its JSON, or names separated by commas."""
        names = settings.names("train.initial_weights_skip", value, "head,*/bias")
        return tuple(filter(None, (name.strip("/") for name in names)))

    @field_validator("augment", mode="before")
    @classmethod
    def _parse_augment(cls, value: Any) -> Any:
        """Accepts a list, its JSON, a comma-separated string, ``true`` (the default), ``false``."""
        if value is True:
            return cls.model_fields["augment"].default
        if value is None or value is False or value in ("", "none", "false"):
            return ()
        return registries.augmentations(settings.names("train.augment", value, "crop,flip"))

    @field_validator("test_time_augment", mode="before")
    @classmethod
    def _parse_test_time_augment(cls, value: Any) -> Any:
        """Accepts ``none`` and ``false``."""
        return None if value in ("", "none", "false", False) else value

    @field_validator("lookahead")
    @classmethod
    def _parse_lookahead(cls, value: int | None) -> int | None:
        """Off is None, as for other settings without a value."""
        return value or None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise SettingError(
                "train.steps",
                self.steps,
                f"and train.epochs: {self.epochs:g} exclude each other",
                "one of them",
            )
        if self.initial_weights_skip and not self.initial_weights:
            raise SettingError(
                "train.initial_weights_skip",
                ",".join(self.initial_weights_skip),
                "skips nothing without train.initial_weights",
                "both, or neither",
            )
        if self.warm_start and not self.initial_weights:
            raise SettingError(
                "train.warm_start",
                self.warm_start.model_dump(exclude_none=True),
                "has no effect without train.initial_weights",
                "both, such as train.initial_weights: last_blessed",
            )
        if self.warm_start and self.warm_start.optimizer_state and self.initial_weights_skip:
            raise SettingError(
                "train.warm_start.optimizer_state",
                True,
                "continues the state of all variables, but train.initial_weights_skip leaves out "
                f"{', '.join(self.initial_weights_skip)}",
                "one of them",
            )
        if self.clip_norm and self.clip_value:
            raise SettingError(
                "train.clip_value",
                self.clip_value,
                f"and train.clip_norm: {self.clip_norm:g} exclude each other, as in Keras",
                "one of them",
            )
        if self.lookahead and self.ema_decay:
            raise SettingError(
                "train.lookahead",
                self.lookahead,
                f"and train.ema_decay: {self.ema_decay:g} exclude each other: each evaluates "
                "averages of its own",
                "one of them",
            )
        if self.steps is not None:  # epochs are known with the data
            self.check_length(self.steps)
        registries.OPTIMIZERS.get(self.optimizer).check(self.optimizer_args)
        registries.SCHEDULES.get(self.schedule).check(self.schedule_args)
        self._check_losses()
        return self

    def check_length(self, steps: int) -> None:
        """Refuses a training of so many steps that has no pull, by a SettingError."""
        if self.lookahead and self.lookahead > steps:
            raise SettingError(
                "train.lookahead",
                self.lookahead,
                f"is after the last step: the training run has {steps:,} steps, and the slow "
                "weights would stay the initial ones",
                f"train.lookahead: {steps} or less",
            )

    def _check_losses(self) -> None:
        losses = self.losses
        outputs = [output for output in losses if output]
        for output in self.loss_weights:
            if output not in outputs:
                raise _misfit("loss_weights", output, "a number")
        for output, arguments in self.loss_args.items() if outputs else ():
            if output not in outputs or not isinstance(arguments, dict):
                raise _misfit("loss_args", output, "a mapping of arguments")
        for name, arguments in losses.values():
            entry = registries.LOSSES.get(name)
            entry.check(arguments)
            if self.label_smoothing and not entry.smooths:
                raise SettingError(
                    "train.label_smoothing",
                    self.label_smoothing,
                    f"is not supported by train.loss: {name}",
                    "train.label_smoothing: 0",
                )

    @property
    def losses(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Name and arguments of the loss of each output; one for all outputs has the key ``""``."""
        if isinstance(self.loss, str):
            return {"": (self.loss, self.loss_args)}
        arguments = self.loss_args
        return {output: (name, arguments.get(output, {})) for output, name in self.loss.items()}

    def total_steps(self, num_examples: int) -> int:
        """Optimizer steps of the whole training."""
        if self.steps is not None:
            return self.steps
        epochs = DEFAULT_EPOCHS if self.epochs is None else self.epochs
        return max(1, round(epochs * num_examples / self.batch_size))

    def steps_between_evaluations(self, num_examples: int) -> int:
        """``eval_every``, or the steps of one epoch."""
        return self.eval_every or self.steps_of_epoch(num_examples)

    def steps_of_epoch(self, num_examples: int) -> int:
        """Steps of one pass over the train split, rounded."""
        return max(1, round(num_examples / self.batch_size))

    def with_defaults(self, defaults: Mapping[str, Any]) -> Self:
        """A copy with ``Task.train_defaults``."""
        given = set(self.model_fields_set)
        if "steps" in given:
            given.add("epochs")
        if "optimizer" in given:
            given |= {"learning_rate", "schedule"}
        return self.model_copy(update={k: v for k, v in defaults.items() if k not in given})

    def without_initial_weights(self) -> Self:
        """A copy without initial weights."""
        names = ("initial_weights", "initial_weights_skip", "warm_start")
        fields = type(self).model_fields
        return self.model_copy(update={name: fields[name].default for name in names})

    @property
    def base_model(self) -> str | None:
        """``initial_weights``, if it names the model of an earlier run; else None."""
        return self.initial_weights if names_a_run(self.initial_weights or "") else None

    @property
    def from_files(self) -> Self:
        """A copy that starts from random weights, if only a pipeline knows the initial ones."""
        return self.without_initial_weights() if self.base_model else self

    def warm(self, weights: str | None = None) -> Self:
        """A copy with the values of ``warm_start``.

        Args:
            weights: the folder of the model that ``base_model`` names; None: there is no such
                model, and the copy starts from random weights.
        """
        if self.base_model and weights is None:
            return self.without_initial_weights()
        warm = self.warm_start or (WarmStart() if self.base_model else None)
        if warm is None:
            return self
        update: dict[str, Any] = {"warm_start": warm}
        update["initial_weights"] = weights or self.initial_weights
        if warm.steps or warm.epochs:
            update |= {"steps": warm.steps, "epochs": warm.epochs}
        if warm.learning_rate:
            update["learning_rate"] = warm.learning_rate
        return self.model_copy(update=update)

    def without_lora(self) -> Self:
        """A copy without adapters of KerasHub, whose files have the same weights otherwise."""
        if not hub.class_name(self.model):
            return self
        kept = {k: v for k, v in self.model_args.items() if not k.startswith("lora_")}
        patterns = ("frozen", "freeze_after", "learning_rate_multipliers", "weight_decay_exclude")
        empty = {name: type(self).model_fields[name].default for name in patterns}
        return self.model_copy(update={"model_args": kept, **empty})


def _misfit(name: str, output: str, noun: str) -> SettingError:
    use = f"{noun} for each output that train.loss maps to a loss"
    return SettingError(f"train.{name}", output, "does not fit train.loss", use)
