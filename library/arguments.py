"""Arguments of a call as settings: objects get names, names of Keras get Keras's defaults."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from stagecraft import given, keras_3
from stagecraft.schemas.errors import SettingError, UserError, setting_error
from stagecraft.schemas.foreign_errors import said
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

_RATES = ("learning_rate", "weight_decay")


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

    def settings(self) -> TrainingSettings:
        """The settings.

        Raises:
            UserError: a setting is invalid.
        """
        try:
            return TrainingSettings.from_flat(self.flat)
        except ValidationError as error:
            problem = error.errors()[0]
            known = setting_error(problem)
            if known is not None:
                raise known from None
            setting = ".".join(map(str, problem["loc"]))
            raise UserError(f"{setting}: {problem['msg']}", setting=setting) from None


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
        result.put("train_model", model if isinstance(model, str) else _function(model))
    if loss is not None:
        result.put("train_loss", loss)
    if optimizer is not None:
        _put_optimizer(result, optimizer)
    if schedule is not None:
        result.put("train_schedule", schedule)
    result.flat |= {f"train_{name}": value for name, value in train.items() if value is not None}
    return result


def _put_optimizer(result: Arguments, optimizer: Any) -> None:
    """Sets the optimizer, and its rates: those of Keras, not the defaults of the settings."""
    flat = result.flat
    if isinstance(optimizer, str):
        entry = registries.OPTIMIZERS.get(optimizer)
        flat["train_optimizer"] = entry.name
        for name, default in _keras_rates(getattr(entry, "class_name", "")).items():
            flat[f"train_{name}"] = default
        flat["train_momentum"] = 0.0
    else:
        config = optimizer.get_config()
        rate = config["learning_rate"]
        if not isinstance(rate, (int, float)):  # a schedule, as its configuration
            result.put("train_schedule", optimizer._learning_rate)
            rate = 1.0
            config["learning_rate"] = rate
        flat["train_learning_rate"] = float(rate)
        flat["train_weight_decay"] = float(config.get("weight_decay") or 0.0)
        result.put("train_optimizer", _Optimizer(type(optimizer), config))
    if "train_schedule" not in result.flat or not given.is_given(flat["train_schedule"]):
        flat["train_schedule"] = "constant"


def _keras_rates(class_name: str) -> dict[str, float]:
    """Learning rate and weight decay that a class of ``keras.optimizers`` has by default."""
    import keras

    kind = getattr(keras.optimizers, class_name, None)
    if kind is None:
        return {}
    known = inspect.signature(kind).parameters
    found = {name: known[name].default for name in _RATES if name in known}
    return {name: float(found.get(name) or 0.0) for name in _RATES if name in found}


class _Optimizer:
    """Makes an optimizer of the same configuration, in any process."""

    def __init__(self, kind: type, config: Mapping[str, Any]):
        self._kind, self._config = kind, dict(config)

    def get_config(self) -> dict[str, Any]:
        """What identifies it, for :mod:`stagecraft.given`."""
        return {"kind": self._kind.__qualname__, **self._config}

    def __call__(self) -> Any:
        return self._kind.from_config(self._config)  # type: ignore[attr-defined]


def _function(model: Any) -> Callable[..., Any]:
    """A function for ``train.model``.

    Raises:
        SettingError: the model is neither a Keras model nor a function.
    """
    import keras

    if isinstance(model, keras.Model):
        return _Copies(model)
    if not callable(model):
        use = "a name, a Keras 3 model (import keras), or a function that returns one"
        raise SettingError("train.model", model, f"is of type {type(model).__name__}", use)
    return Called(model)


class Called:
    """Calls a function with those arguments of the task that it has.

    The result is not compiled: the settings say what ``compile`` of Keras does.
    """

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def compiled(self) -> Any:
        """What the function returns without arguments.

        Raises:
            UserError: the function fails.
        """
        try:
            with keras_3.as_tf_keras():
                return self._function()
        except Exception as error:  # whatever the user's function raises
            name = getattr(self._function, "__name__", type(self._function).__name__)
            raise UserError(
                f"train.model: {name}() failed: {said(error)}", setting="train.model", value=name
            ) from error

    def __call__(self, **arguments: Any) -> Any:
        """The function's result."""
        parameters = inspect.signature(self._function).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            arguments = {name: value for name, value in arguments.items() if name in parameters}
        with keras_3.as_tf_keras():
            made = self._function(**arguments)
        for model in made if isinstance(made, (list, tuple)) else [made]:
            if getattr(model, "compiled", False):
                model.compiled = False
        return made


class _Copies:
    """Makes copies of a model, with its weights."""

    def __init__(self, model: Any):
        import keras

        self._kind, self._weights = type(model), model.get_weights()
        try:
            self._content = keras.saving.serialize_keras_object(model)
            self._content["compile_config"] = None  # its optimizer would make variables
            self()
        except Exception as error:  # whatever the model's get_config or from_config raises
            raise SettingError(
                "train.model",
                model.name,
                f"cannot be built again from its configuration: {said(error)}",
                "a function that returns the model",
            ) from error

    def get_config(self) -> dict[str, Any]:
        """What identifies it, for :mod:`stagecraft.given`; weights do not count."""
        return dict(self._content)

    def __call__(self, **_: Any) -> Any:
        import keras

        scope = {self._kind.__name__: self._kind}
        built = keras.saving.deserialize_keras_object(
            copy.deepcopy(self._content),  # Keras empties it
            custom_objects=scope,
            safe_mode=False,
        )
        built.set_weights(self._weights)
        return built
