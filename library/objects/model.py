"""Builds a caller's model again, on any devices: same configuration, same weights."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft import keras_3, pickles
from stagecraft.objects import assets, custom, equality
from stagecraft.schemas.errors import SettingError, UserError
from stagecraft.schemas.foreign_errors import cleaned, said
from stagecraft.trainer_module.data.tasks.task import Spec
from stagecraft.trainer_module.models.layers import arguments
from stagecraft.trainer_module.models.stages import inputs as model_inputs
from stagecraft.trainer_module.parallel.settings import ParallelSettings

PRECISIONS = ("float32", "float64", "mixed_bfloat16", "mixed_float16")


class Builder:
    """Builds a model; called by ``train.model``.

    The model is not compiled: the settings say what ``compile`` of Keras does.
    """

    paths: Sequence[str] = ()
    """Paths of the weights of the model that a job built last, in Keras's order."""

    def __init__(self, build: Callable[..., Any]):
        self._build = build

    def __call__(self, **arguments: Any) -> Any:
        """A new model, or several that follow each other.

        Args:
            arguments: of the task; the caller's function gets those that it has.
        """
        parameters = inspect.signature(self._build).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            arguments = {name: value for name, value in arguments.items() if name in parameters}
        with keras_3.as_tf_keras():
            made = self._build(**arguments)
        for model in made if isinstance(made, (list, tuple)) else [made]:
            if getattr(model, "compiled", False):
                model.compiled = False
        return made

    def get_config(self) -> Mapping[str, Any]:
        """What the builder's name among given objects depends on: not the weights of a model."""
        if isinstance(self._build, Copy):
            return self._build.get_config()
        return {"function": pickles.digest(self._build)}

    def __getstate__(self) -> Mapping[str, Any]:
        return {"_build": self._build}


class Copy:
    """Builds copies of a model, with its weights."""

    def __init__(self, model: keras.Model, inputs: Any, precision: str | None):
        """Reads configuration and weights.

        Args:
            inputs: some examples, or a structure of them; the model is called with them, which
                builds layers that are not built. None: the model stays as it is.
            precision: replaces the model's own dtype policy in all layers; None: does not.

        Raises:
            SettingError: the configuration of the model cannot be read.
        """
        self._inputs = inputs
        if inputs is not None and not model.built:
            model(inputs, training=False)
        elif inputs is not None:  # some layers make weights in their first call
            with contextlib.suppress(Exception), _unchanged(model):
                model(inputs, training=False)
        for each in model._flatten_layers():
            if lost := _own_arguments(type(each)):
                problem = f"{type(each).__name__} has no get_config, which returns {lost[0]}"
                raise _not_copied(model, TypeError(problem))
        own = _own_names(type(model))
        simple = "__init__" in own and not own & {"get_config", "from_config"}
        self._kind = type(model) if simple else None
        layers = _layers(model)
        try:
            config, self._objects = custom.serialized(model)
            self._assets = assets.read(layers)
        except SettingError:
            raise
        except Exception as error:  # whatever get_config of the user's layers raises
            raise _not_copied(model, error) from error
        config.pop("compile_config", None)
        policy = model.dtype_policy.name
        if precision not in (None, policy):
            config = _with_policy(config, policy, precision)
        self._config = config
        self._trainable = [layer.trainable for layer in layers]
        self._arguments = [arguments.plain(layer) for layer in layers]
        self._weights = [weight.numpy() for weight in model.weights]
        self._paths = [variable.path for variable in model.variables]
        self._frozen = [not weight.trainable for weight in model.weights]
        self._name = model.name

    def get_config(self) -> Mapping[str, Any]:
        """What the model's name among given objects depends on: not the weights."""
        functions = [each for each in self._objects.values() if not isinstance(each, type)]
        code = [pickles.digest(each) for each in functions]
        return {
            "model": self._config,
            "trainable": self._trainable,
            "frozen": self._frozen,
            "functions": code,
            "assets": pickles.digest(self._assets),
        }

    def __call__(self) -> keras.Model:
        """A new copy.

        Raises:
            SettingError: the model's class does not build it from its configuration.
        """
        try:
            model = self._built()
        except Exception as error:  # whatever from_config of the user's classes raises
            raise _not_copied(self, error) from error
        if self._inputs is not None and len(model.weights) < len(self._weights):
            model(self._inputs, training=False)
        layers = _layers(model)
        if len(model.weights) != len(self._weights) or len(layers) != len(self._trainable):
            raise _not_copied(self, ValueError("the copy has other layers or weights"))
        self._check(layers)
        try:
            for weight, value in zip(model.weights, self._weights, strict=True):
                weight.assign(value)
            assets.restore(layers, self._assets)
        except Exception as error:  # weights in another order, or whatever a user's layer raises
            raise _not_copied(self, error) from error
        for layer, trainable in zip(layers, self._trainable, strict=True):
            if layer.trainable != trainable:
                layer.trainable = trainable
        for weight, frozen in zip(model.weights, self._frozen, strict=True):
            if weight.trainable == frozen:
                weight.trainable = not frozen
        variables = model.variables
        if len({each.path for each in variables}) < len(variables) == len(self._paths):
            # A class that makes its layers in __init__ gave them names that the others have.
            for variable, path in zip(variables, self._paths, strict=True):
                variable._path = path
        return model

    def _check(self, layers: Sequence[keras.Layer]) -> None:
        """Refuses a copy with other arguments than the model's: a ``get_config`` lacks one."""
        for layer, expected in zip(layers, self._arguments, strict=True):
            found = arguments.plain(layer)
            for name in expected.keys() & found.keys():
                one, two = found[name], expected[name]
                if one != two and (one == one or two == two):  # a number that is none stays so
                    raise SettingError(
                        "train.model",
                        self._name,
                        f"cannot be built again from its configuration: the {type(layer).__name__} "
                        f"{layer.name} has {name}={expected[name]!r}, its copy {found[name]!r}",
                        f"a get_config that returns {name}, or a function that builds the model",
                    )

    def _built(self) -> keras.Model:
        if self._kind is not None:
            return self._kind()
        config = copy.deepcopy(self._config)  # Keras takes it apart
        with keras.saving.custom_object_scope(self._objects):
            return keras.saving.deserialize_keras_object(config, safe_mode=False)

    @property
    def name(self) -> str:
        """Of the model."""
        return self._name


def builder(
    model: Any, inputs: Any = None, precision: str | None = None, examples: Any = None
) -> Builder:
    """Builds copies of a Keras model, or calls a function that returns a model.

    Args:
        inputs: the inputs' ``Spec``, or a structure of them; None: those that the model knows.
        precision: replaces the model's own dtype policy in all layers; None: does not.
        examples: some inputs, ``[batch, …]``, for which copies have to compute what the model
            computes; None: random ones.

    Raises:
        SettingError: it is neither, or the model cannot be copied.
    """
    if isinstance(model, keras.Model):
        if examples is not None:
            first = examples
        else:
            first = None if inputs is None else tf.nest.map_structure(_zeros, inputs)
        exact = Copy(model, first, None)
        if examples is None:
            with contextlib.suppress(SettingError):  # the model does not know its inputs
                examples = _random(specs(model) if inputs is None else inputs)
        if examples is not None:
            with tf.device("CPU:0"):
                equality.check(model, exact(), examples)
        same = precision in (None, model.dtype_policy.name)
        return Builder(exact if same else Copy(model, first, precision))
    if callable(model) and not isinstance(model, type):
        return Builder(model)
    shown = model.__name__ if isinstance(model, type) else type(model).__name__
    use = "a keras.Model, or a function that returns one"
    raise SettingError("train.model", shown, "is not a Keras 3 model", use)


def compiled(build: Callable[[], Any]) -> Any:
    """What the caller's function returns without arguments, compiled as the function does it.

    Raises:
        UserError: the function fails.
    """
    try:
        with keras_3.as_tf_keras():
            return build()
    except Exception as error:  # whatever the user's function raises
        name = getattr(build, "__name__", type(build).__name__)
        raise UserError(
            f"train.model: {name}() failed: {said(error)}", setting="train.model", value=name
        ) from error


def compile_arguments(model: keras.Model) -> Mapping[str, Any]:
    """Arguments of the model's ``compile``, by name: loss, metrics and so on."""
    config: Mapping[str, Any] = model._compile_config.config  # private: what compile received
    return config


def precision_of(model: Any, parallel: ParallelSettings) -> str:
    """``parallel.precision``; if it is not set, the precision of the model's own layers.

    Raises:
        SettingError: ``parallel.precision`` is ``auto``, which is for pipelines.
    """
    if parallel.precision == "auto":
        raise SettingError(
            "parallel.precision",
            "auto",
            "is for pipelines and stagecraft.train",
            "mixed_bfloat16 or float32",
        )
    if "precision" in parallel.model_fields_set or not isinstance(model, keras.Model):
        return parallel.precision
    dtypes = {str(weight.dtype) for weight in model.weights if "float" in str(weight.dtype)}
    name = "float64" if dtypes == {"float64"} else model.dtype_policy.name
    return name if name in PRECISIONS else parallel.precision


def specs(model: Any, input_shape: Any = None) -> Any:
    """``Spec`` of a model's inputs, or a structure of them; calls a function that builds one.

    Args:
        input_shape: of one example, if the model does not know it.

    Raises:
        SettingError: there is no model, or it does not know its inputs.
    """
    if input_shape is not None:
        return Spec(tuple(input_shape))
    found = model if isinstance(model, keras.Model) else model() if callable(model) else None
    if not isinstance(found, keras.Model):
        builder(model if found is None else found)  # refuses it
    try:
        symbolic = model_inputs.of(found)
    except (LookupError, AttributeError, ValueError) as error:
        raise SettingError(
            "input_shape", None, "is needed: the model does not say it", "input_shape=(32, 32, 3)"
        ) from error
    return tf.nest.map_structure(lambda each: Spec(each.shape[1:], each.dtype), symbolic)


def output_names(model: Any) -> Sequence[str]:
    """Names of a functional model's outputs, or the keys of a dictionary; () of other models."""
    structure = getattr(model, "_outputs_struct", None)  # private: the outputs as they were given
    if isinstance(structure, Mapping):
        return tuple(structure)
    return tuple(getattr(model, "output_names", None) or ())


@contextlib.contextmanager
def _unchanged(model: keras.Model) -> Iterator[None]:
    """Keeps the state of a model, such as counters, which are no weights to train."""
    state = [(each, tf.identity(each)) for each in model.non_trainable_variables]
    try:
        yield
    finally:
        for variable, value in state:
            variable.assign(value)


def _layers(model: keras.Model) -> list[keras.Layer]:
    """Layers, nested ones too, but for inputs: a copy does not share them with inner models."""
    return [
        each for each in model._flatten_layers() if not isinstance(each, keras.layers.InputLayer)
    ]


def _own_names(kind: type) -> set[str]:
    """What a class defines that Keras does not."""
    own = [each for each in kind.__mro__ if not each.__module__.startswith("keras.")]
    return {name for each in own if each is not object for name in vars(each)}


def _own_arguments(kind: type) -> list[str]:
    """Arguments of a model's class that no ``get_config`` returns.

    Keras keeps the arguments of layers, but not those of models.
    """
    own = _own_names(kind)
    if "__init__" not in own or "get_config" in own or not issubclass(kind, keras.Model):
        return []
    of_init = inspect.signature(kind.__init__)  # type: ignore[misc]  # a class has __new__ as well
    parameters = list(of_init.parameters.values())[1:]
    open_ends = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [each.name for each in parameters if each.kind not in open_ends]
    return [name for name in names if name not in ("name", "trainable", "dtype")]


def _zeros(spec: Spec) -> np.ndarray:
    return model_inputs.zeros(spec, 2)


def _random(inputs: Any) -> Any:
    """Random values for the inputs' ``Spec``, or a structure of them."""
    specs = tf.nest.map_structure(
        lambda spec: tf.TensorSpec(_zeros(spec).shape, spec.dtype), inputs
    )
    return model_inputs.noise(specs, np.random.default_rng(0))


def _with_policy(config: Any, before: str, after: str | None) -> Any:
    """The configuration with another dtype policy in place of ``before``."""
    if isinstance(config, dict):
        is_policy = config.get("class_name") == "DTypePolicy"
        if is_policy and config.get("config") == {"name": before}:
            return config | {"config": {"name": after}}
        return {key: _with_policy(value, before, after) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return type(config)(_with_policy(value, before, after) for value in config)
    return config


def _not_copied(model: Any, error: Exception) -> SettingError:
    return SettingError(
        "train.model",
        model.name,
        f"cannot be built again from its configuration: {_reason(error)}",
        "a function that builds the model, or give its class a get_config",
    )


def _reason(error: Exception) -> str:
    """What went wrong, without the configuration that Keras prints before and after it."""
    before, _, last = str(error).rpartition("Exception encountered: ")
    return (
        cleaned(re.split(r"Make sure|Full object config|config=", last)[0])
        if before
        else said(error)
    )
