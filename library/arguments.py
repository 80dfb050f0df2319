"""Arguments of a call as settings: objects get names, names of Keras get Keras's defaults."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from stagecraft import given
from stagecraft.schemas.base_settings import readable
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings


@dataclasses.dataclass
class Arguments:
    """Settings that name objects, and the objects' names."""

    flat: dict[str, Any]
    """``TrainingSettings.flat()``, or a part of it."""
    given: list[str] = dataclasses.field(default_factory=list)
    """Names from :mod:`stagecraft.given`, for other processes."""

    def put(self, setting: str, value: Any) -> None:
        """Sets a flat setting to the name of an object; a name stays as it is."""
        if not isinstance(value, str):
            role = setting.removeprefix("train_").removesuffix("_name")
            value = given.put(role, value)
            self.given.append(value)
        self.flat[setting] = value

    def put_optimizer(self, optimizer: Any) -> None:
        """Sets an optimizer, and its rates: those of Keras, not the defaults of the settings."""
        from stagecraft.objects import optimizer as given_optimizer

        if isinstance(optimizer, str):
            options = given_optimizer.of_name(optimizer)
        else:
            options, names = given_optimizer.settings(optimizer)
            self.given += names
        self.flat |= {f"train_{name}": value for name, value in options.items()}

    def settings(self) -> TrainingSettings:
        """The settings.

        Raises:
            UserError: a setting is invalid.
        """
        with readable():
            return TrainingSettings.from_flat(self.flat)


def collect(
    base: Mapping[str, Any],
    *,
    parallel: ParallelSettings | None,
    model: Any,
    optimizer: Any,
    loss: Any,
    schedule: Any = None,
    **train: Any,
) -> Arguments:
    """The settings of a call.

    Args:
        base: flat settings that the arguments replace.
        parallel: None: that of ``base``.
        model: a name, a Keras model, or a function that returns one; None: that of ``base``.
        optimizer: a name, or an optimizer of Keras; None: that of ``base``.
        loss: a name, a loss of Keras, or a function of targets and outputs; None: that of ``base``.
        train: fields of :class:`TrainSettings`.

    Raises:
        TypeError: a keyword is not a field of TrainSettings.
        UserError: the optimizer cannot be made again in another process.
    """
    for name in train:
        if name not in TrainSettings.model_fields:
            near = difflib.get_close_matches(name, TrainSettings.model_fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"{name} is not a setting of train:{hint}")
    result = Arguments(dict(base))
    if parallel is not None:
        kept = {key: value for key, value in base.items() if not key.startswith("parallel_")}
        own = TrainingSettings.model_construct(parallel=parallel).model_dump(include={"parallel"})
        result.flat = kept | {f"parallel_{k}": v for k, v in own["parallel"].items()}
    if {"steps", "epochs"} & train.keys():
        for name in ("train_steps", "train_epochs"):
            result.flat.pop(name, None)
    if model is not None:
        result.put("train_model", model if isinstance(model, str) else _built(model))
    if loss is not None:
        result.put("train_loss", loss)
    if optimizer is not None:
        result.put_optimizer(optimizer)
    if schedule is not None:
        result.put("train_schedule", schedule)
    result.flat |= {f"train_{name}": value for name, value in train.items() if value is not None}
    return result


def _built(model: Any) -> Any:
    """A builder for ``train.model``; it has built a Keras model once."""
    import keras

    from stagecraft.objects import model as given_model

    builder = given_model.builder(model)
    if isinstance(model, keras.Model):
        builder()
    return builder
