"""Canned Estimators as task, model and settings. Imports no TensorFlow.

Arguments and defaults are those of ``tf.estimator`` 2.x; ``label`` names the raw feature that an
``input_fn`` returned apart.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft import named_objects
from stagecraft.common import signatures
from stagecraft.common.errors import SettingError
from stagecraft.common.registry import UnknownNameError
from stagecraft.common.settings import readable
from stagecraft.contrib.estimator import feature_columns
from stagecraft.contrib.estimator.feature_columns import FeatureColumn, Input
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.data.tasks.kinds.binary_classification import BinaryClassification
from stagecraft.trainer_module.data.tasks.kinds.classification import (
    Classification,
    class_numbers,
)
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression
from stagecraft.trainer_module.data.tasks.tables.column import Column
from stagecraft.trainer_module.data.tasks.tables.table import Table
from stagecraft.trainer_module.models import table_layers
from stagecraft.trainer_module.optimization.optimizer import TAKEN
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Nest


_NONE: Mapping[str, Any] = MappingProxyType({})
"""Estimator has its own defaults."""


class RegressionHead(Regression):
    """The task of the regressors. Estimator does not scale labels."""

    train_defaults = _NONE

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``predictions``: float32 ``[batch, 1]``."""
        import tensorflow as tf

        return {"predictions": tf.cast(outputs, tf.float32)}


class BinaryHead(BinaryClassification):
    """The task of the classifiers of two classes: one logit."""

    train_defaults = _NONE

    def __init__(
        self,
        features: Mapping[str, Column | str | Mapping[str, Any]],
        label: str,
        weight: str | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
    ):
        """See :class:`Classification`."""
        given = None if label_vocabulary is None else tuple(label_vocabulary)
        super().__init__(features, label, weight, None if given is None else str(given[1]))
        self.label_vocabulary = given

    def to_label(self, raw: Any) -> Any:
        """0 or 1, float32 ``[batch]``; any other label is an error."""
        import tensorflow as tf

        return tf.cast(class_numbers(raw, self.label, 2, self.label_vocabulary), tf.float32)

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logits``, ``logistic``, ``class_ids``, ``classes`` ``[batch, 1]``; ``probabilities``
        ``[batch, 2]``."""
        import tensorflow as tf

        logits = tf.cast(outputs, tf.float32)
        logistic = tf.sigmoid(logits)
        return {
            "logits": logits,
            "logistic": logistic,
            "probabilities": tf.concat([1 - logistic, logistic], axis=1),
            **_classes(tf.cast(logits > 0, tf.int64), 2, self.label_vocabulary),
        }


class ClassHead(Classification):
    """The task of the classifiers of more classes."""

    train_defaults = _NONE

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``logits``, ``probabilities`` ``[batch, classes]``; ``class_ids``, ``classes``
        ``[batch, 1]``."""
        import tensorflow as tf

        logits = tf.cast(outputs, tf.float32)
        ids = tf.argmax(logits, axis=-1)[:, tf.newaxis]
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            **_classes(ids, self.num_classes, self.class_names),
        }


def _classes(ids: Any, count: int, vocabulary: Sequence[Any] | None) -> dict[str, Any]:
    import tensorflow as tf

    names = tf.constant(list(map(str, range(count) if vocabulary is None else vocabulary)))
    return {"class_ids": ids, "classes": tf.gather(names, ids)}


Optimizer = Any
"""A name; ``{"name": "ftrl", "learning_rate": 0.1, …}``; or a ``keras.optimizers.Optimizer``."""

_USE = '"Ftrl", {"name": "ftrl", "learning_rate": 0.1}, or an optimizer of Keras'


def optimizer_settings(parts: Mapping[str, tuple[str, Optimizer, float]]) -> dict[str, Any]:
    """Settings of ``train`` for one optimizer, or for one of each part.

    Args:
        parts: pattern of the weights -> name of the argument, its value, and the learning rate of
            a value that has none. The last pattern is that of all other weights.

    Raises:
        SettingError: an argument is no optimizer.
    """
    found = {pattern: _parsed(*given) for pattern, given in parts.items()}
    rates = {pattern: each.pop("learning_rate") for pattern, each in found.items()}
    rate = [*rates.values()][-1]
    result = {
        "learning_rate": rate,
        "schedule": "constant",
        "weight_decay": 0.0,
        "momentum": _momentum(found, {pattern: given[0] for pattern, given in parts.items()}),
    }
    if len(found) == 1:
        [own] = found.values()
        return result | {"optimizer": own.pop("name"), "optimizer_args": own or None}
    factors = {pattern: each / rate for pattern, each in rates.items() if each != rate}
    return result | {
        "optimizer": "parts",
        "optimizer_args": found,
        "learning_rate_multipliers": factors or None,
    }


def _momentum(found: Mapping[str, dict[str, Any]], arguments: Mapping[str, str]) -> float:
    """The momentum of SGD, which is a setting of its own; taken out of ``found``."""
    momenta: dict[float, str] = {}
    for pattern, own in found.items():
        if own["name"] == "sgd":
            momenta[own.pop("momentum", 0.0)] = arguments[pattern]
            own.setdefault("nesterov", False)
    if len(momenta) > 1:
        argument = [*momenta.values()][-1]
        problem = "are two values of momentum for sgd"
        raise SettingError(argument, sorted(momenta), problem, "the same momentum for both parts")
    return next(iter(momenta), 0.0)


def _parsed(argument: str, given: Optimizer, rate: float) -> dict[str, Any]:
    """Name, learning rate, and arguments."""
    if isinstance(given, str):
        result: dict[str, Any] = {"name": given}
    elif isinstance(given, Mapping) and isinstance(given.get("name"), str):
        result = dict(given)
    elif callable(getattr(given, "get_config", None)):
        result = _of_object(argument, given)
    else:
        raise SettingError(argument, given, "is no optimizer", _USE)
    try:
        result["name"] = registries.OPTIMIZERS.get(result["name"]).name
    except SettingError as error:
        problem = f"is no optimizer here ({error})"
        if isinstance(error, UnknownNameError):
            problem = "does not exist"
        raise SettingError(argument, result["name"], problem, error.suggestion) from error
    own = result.setdefault("learning_rate", rate)
    if isinstance(own, bool) or not isinstance(own, (int, float)) or own <= 0:
        problem = "has a learning rate that is not a number above 0"
        use = "a number, and train.schedule for a schedule"
        raise SettingError(argument, own, problem, use)
    return result


def _of_object(argument: str, given: Any) -> dict[str, Any]:
    """Name, and the arguments that differ from the class's defaults."""
    name, config = type(given).__name__, given.get_config()
    defaults = signatures.arguments("keras.optimizers", name)
    if not defaults:
        raise SettingError(argument, name, "is no class of keras.optimizers", _USE)
    fresh = type(given)().get_config()
    changed = {
        key: value for key, value in config.items() if key != "name" and fresh.get(key) != value
    }
    for key in changed:
        if key in TAKEN and key != "learning_rate":
            raise SettingError(argument, name, f"sets {key}", TAKEN[key])
    rate = config.get("learning_rate")
    if isinstance(rate, float):
        rate = float(f"{rate:.8g}")  # Keras holds it as float32
    return {"name": name.lower(), **changed, "learning_rate": rate}


@dataclasses.dataclass(frozen=True)
class CannedModel:
    """Builds a linear model, dense layers, or the sum of both; a value of ``train.model``."""

    linear: Sequence[Input] = ()
    deep: Sequence[Input] = ()
    hidden_units: Sequence[int] = ()
    activation: Any = "relu"
    dropout: float | None = None
    batch_norm: bool = False

    def __call__(self, numeric: Sequence[str], categorical: Mapping[str, int], outputs: int) -> Any:
        """A new ``keras.Model`` of a dictionary of inputs ``[batch, 1]``: ``[batch, outputs]``."""
        import keras

        given = table_layers.inputs(numeric, categorical)
        parts = []
        if self.linear:
            parts.append(self._linear(given, outputs))
        if self.deep:
            parts.append(self._deep(given, outputs))
        result = parts[0]
        if len(parts) > 1:
            result = keras.layers.Add(name=table_layers.free("logits", given))(parts)
        return keras.Model(given, result, name="estimator")

    def _linear(self, given: Mapping[str, Any], outputs: int) -> Any:
        from keras import layers

        from stagecraft.contrib.estimator.layers import Bias, Rows

        terms = []
        for each in self.linear:
            name = table_layers.free(f"linear_{each.estimator_name}", given)
            if each.ids is None:
                layer: Any = layers.Dense(
                    outputs, use_bias=False, kernel_initializer="zeros", name=name
                )
            else:
                layer = Rows(each.ids, outputs, name=name)
            terms.append(layer(given[each.name]))
        total = terms[0]
        if len(terms) > 1:
            total = layers.Add(name=table_layers.free("linear", given))(terms)
        return Bias(name=table_layers.free("linear_bias", given))(total)

    def _deep(self, given: Mapping[str, Any], outputs: int) -> Any:
        import keras
        from keras import layers

        from stagecraft.contrib.estimator.layers import OneHot, Rows

        tables: dict[str, Any] = {}
        parts = []
        for each in self.deep:
            table = each.shared or each.estimator_name
            name = table_layers.free(f"dnn_{table}", given)
            if each.ids is None:
                parts.append(given[each.name])
                continue
            if each.dimension is None:
                layer: Any = OneHot(each.ids, name=name)
            elif table in tables:
                layer = tables[table]
            else:
                deviation = 1 / math.sqrt(each.dimension)
                initializer = keras.initializers.TruncatedNormal(stddev=deviation)
                layer = tables[table] = Rows(each.ids, each.dimension, initializer, name=name)
            parts.append(layer(given[each.name]))
        hidden = parts[0]
        if len(parts) > 1:
            hidden = layers.Concatenate(name=table_layers.free("dnn_input_layer", given))(parts)
        for number, units in enumerate(self.hidden_units):
            name = table_layers.free(f"dnn_hiddenlayer_{number}", given)
            hidden = layers.Dense(units, activation=self.activation, name=name)(hidden)
            if self.dropout:
                name = table_layers.free(f"dnn_dropout_{number}", given)
                hidden = layers.Dropout(self.dropout, name=name)(hidden)
            if self.batch_norm:
                name = table_layers.free(f"dnn_batchnorm_{number}", given)
                hidden = layers.BatchNormalization(momentum=0.999, name=name)(hidden)
        return layers.Dense(outputs, name=table_layers.free("dnn_logits", given))(hidden)


Columns = Mapping[str, FeatureColumn]
"""Feature columns by name. The name is that of the raw feature, unless ``source`` says another."""

_ARGUMENTS = {"task.args.label": "label", "task.args.weight": "weight_column"}
"""Settings of a table's task -> arguments."""

_LINEAR = "^linear_"
"""Paths of the weights of the linear part."""


class Canned:
    """A canned model: what to train, and how."""

    def __init__(self, task: Table, model: CannedModel, train_settings: Mapping[str, Any]):
        """See the attributes."""
        self.task = task
        """A value of ``task.name``."""
        self.model = model
        """A value of ``train.model``: a function that returns a Keras model with logits."""
        self.train_settings = {key: v for key, v in train_settings.items() if v is not None}
        """Settings of ``train`` for Estimator's optimizers."""

    def build(self) -> Any:
        """A new ``keras.Model`` of a dictionary of transformed features ``[batch, 1]``."""
        return self.model(**self.task.sample_arguments or {})

    @property
    def loss(self) -> Any:
        """The loss for ``sc.fit`` and ``keras.Model.compile``, of the model's logits."""
        import keras

        if isinstance(self.task, BinaryHead):
            return keras.losses.BinaryCrossentropy(from_logits=True)
        if isinstance(self.task, ClassHead):
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return keras.losses.MeanSquaredError()

    def settings(self, parallel: ParallelSettings | None = None, **train: Any) -> TrainingSettings:
        """The settings of a training in this process.

        Args:
            train: more settings of ``train``, such as ``steps``; they go before ``train_settings``.
        """
        names = {"model": named_objects.put("model", self.model)}
        with readable():
            return TrainingSettings.model_validate(
                {
                    "task": {"name": named_objects.put("task", self.task)},
                    "train": {**self.train_settings, **train, **names},
                    "parallel": (parallel or ParallelSettings()).model_dump(),
                }
            )


class _Linear(Canned):
    def __init__(self, columns: Columns, optimizer: Optimizer, reduction: str, **head: Any):
        parsed = feature_columns.parsed("feature_columns", columns)
        task = _head(feature_columns.of_table(feature_columns=parsed), reduction, **head)
        rate = min(0.2, 1 / math.sqrt(len(parsed)))
        model = CannedModel(linear=feature_columns.linear(parsed))
        super().__init__(task, model, optimizer_settings({"": ("optimizer", optimizer, rate)}))


class LinearRegressor(_Linear):
    """``tf.estimator.LinearRegressor``: a weight for each number and each id, and a bias."""

    def __init__(
        self,
        feature_columns: Columns,
        *,
        label: str,
        weight_column: str | None = None,
        optimizer: Optimizer = "Ftrl",
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments.

        Raises:
            SettingError: an argument is invalid.
        """
        super().__init__(
            feature_columns, optimizer, loss_reduction, label=label, weight=weight_column
        )


class LinearClassifier(_Linear):
    """``tf.estimator.LinearClassifier``; with two classes, the model has one logit."""

    def __init__(
        self,
        feature_columns: Columns,
        *,
        label: str,
        n_classes: int = 2,
        weight_column: str | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
        optimizer: Optimizer = "Ftrl",
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments.

        Raises:
            SettingError: an argument is invalid.
        """
        super().__init__(
            feature_columns,
            optimizer,
            loss_reduction,
            label=label,
            weight=weight_column,
            n_classes=n_classes,
            label_vocabulary=label_vocabulary,
        )


class _Deep(Canned):
    def __init__(
        self,
        columns: Columns,
        hidden_units: Sequence[int],
        optimizer: Optimizer,
        reduction: str,
        layers: Mapping[str, Any],
        **head: Any,
    ):
        parsed = feature_columns.parsed("feature_columns", columns)
        task = _head(feature_columns.of_table(feature_columns=parsed), reduction, **head)
        model = CannedModel(deep=feature_columns.deep(parsed), **_layers(hidden_units, **layers))
        super().__init__(task, model, optimizer_settings({"": ("optimizer", optimizer, 0.05)}))


class DNNRegressor(_Deep):
    """``tf.estimator.DNNRegressor``: dense layers."""

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Columns,
        *,
        label: str,
        weight_column: str | None = None,
        optimizer: Optimizer = "Adagrad",
        activation_fn: Any = "relu",
        dropout: float | None = None,
        batch_norm: bool = False,
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments.

        Args:
            activation_fn: name of an activation of Keras, or a function.
            dropout: share of the hidden units that a step drops.

        Raises:
            SettingError: an argument is invalid.
        """
        layers = {"activation": activation_fn, "dropout": dropout, "batch_norm": batch_norm}
        head = {"label": label, "weight": weight_column}
        super().__init__(feature_columns, hidden_units, optimizer, loss_reduction, layers, **head)


class DNNClassifier(_Deep):
    """``tf.estimator.DNNClassifier``; with two classes, the model has one logit."""

    def __init__(
        self,
        hidden_units: Sequence[int],
        feature_columns: Columns,
        *,
        label: str,
        n_classes: int = 2,
        weight_column: str | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
        optimizer: Optimizer = "Adagrad",
        activation_fn: Any = "relu",
        dropout: float | None = None,
        batch_norm: bool = False,
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments; see :class:`DNNRegressor`.

        Raises:
            SettingError: an argument is invalid.
        """
        layers = {"activation": activation_fn, "dropout": dropout, "batch_norm": batch_norm}
        head = {
            "label": label,
            "weight": weight_column,
            "n_classes": n_classes,
            "label_vocabulary": label_vocabulary,
        }
        super().__init__(feature_columns, hidden_units, optimizer, loss_reduction, layers, **head)


class _Combined(Canned):
    def __init__(
        self,
        wide: tuple[Columns | None, Optimizer],
        deep: tuple[Columns | None, Optimizer],
        hidden_units: Sequence[int] | None,
        reduction: str,
        layers: Mapping[str, Any],
        **head: Any,
    ):
        linear = feature_columns.parsed("linear_feature_columns", wide[0] or {})
        dnn = feature_columns.parsed("dnn_feature_columns", deep[0] or {})
        table = feature_columns.of_table(linear_feature_columns=linear, dnn_feature_columns=dnn)
        parts: dict[str, tuple[str, Optimizer, float]] = {}
        if linear:
            rate = min(0.005, 1 / math.sqrt(len(linear)))
            parts[_LINEAR if dnn else ""] = ("linear_optimizer", wide[1], rate)
        if dnn:
            parts[""] = ("dnn_optimizer", deep[1], 0.001)
        model = CannedModel(
            feature_columns.linear(linear),
            feature_columns.deep(dnn),
            **(_layers(hidden_units or (), **layers, prefix="dnn_") if dnn else {}),
        )
        super().__init__(_head(table, reduction, **head), model, optimizer_settings(parts))


class DNNLinearCombinedRegressor(_Combined):
    """``tf.estimator.DNNLinearCombinedRegressor``: a linear model plus dense layers."""

    def __init__(
        self,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: Optimizer = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: Optimizer = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        *,
        label: str,
        dnn_activation_fn: Any = "relu",
        dnn_dropout: float | None = None,
        batch_norm: bool = False,
        weight_column: str | None = None,
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments; see :class:`DNNRegressor`.

        Raises:
            SettingError: an argument is invalid.
        """
        super().__init__(
            (linear_feature_columns, linear_optimizer),
            (dnn_feature_columns, dnn_optimizer),
            dnn_hidden_units,
            loss_reduction,
            {"activation": dnn_activation_fn, "dropout": dnn_dropout, "batch_norm": batch_norm},
            label=label,
            weight=weight_column,
        )


class DNNLinearCombinedClassifier(_Combined):
    """``tf.estimator.DNNLinearCombinedClassifier``; two classes have one logit."""

    def __init__(
        self,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: Optimizer = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: Optimizer = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        *,
        label: str,
        dnn_activation_fn: Any = "relu",
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: str | None = None,
        label_vocabulary: Sequence[str | int] | None = None,
        batch_norm: bool = False,
        loss_reduction: str = "sum_over_batch_size",
    ):
        """Takes Estimator's arguments; see :class:`DNNRegressor`.

        Raises:
            SettingError: an argument is invalid.
        """
        super().__init__(
            (linear_feature_columns, linear_optimizer),
            (dnn_feature_columns, dnn_optimizer),
            dnn_hidden_units,
            loss_reduction,
            {"activation": dnn_activation_fn, "dropout": dnn_dropout, "batch_norm": batch_norm},
            label=label,
            weight=weight_column,
            n_classes=n_classes,
            label_vocabulary=label_vocabulary,
        )


def _head(
    columns: Mapping[str, Any],
    reduction: str,
    label: str,
    weight: str | None,
    n_classes: int | None = None,
    label_vocabulary: Sequence[str | int] | None = None,
) -> Table:
    if str(reduction).lower().rpartition(".")[2] not in ("sum_over_batch_size", "auto"):
        use = "sum_over_batch_size, with the learning rate times the batch size for a sum"
        raise SettingError("loss_reduction", reduction, "is not supported", use)
    for argument, value in (("label", label), ("weight_column", weight or "none")):
        checks.of_type(argument, value, str, "is not the name of a raw feature", "a text")
    if n_classes is not None:
        checks.whole("n_classes", n_classes, 2)
    if n_classes is not None and label_vocabulary is not None:
        values = len(set(label_vocabulary))
        if values != n_classes or len(label_vocabulary) != n_classes:
            problem = f"are not {n_classes} different values, as many as n_classes"
            use = f"n_classes={values}" if values == len(label_vocabulary) > 1 else '["no", "yes"]'
            raise SettingError("label_vocabulary", label_vocabulary, problem, use)
    try:
        if n_classes is None:
            return RegressionHead(columns, label, weight, "none")
        if n_classes == 2:
            return BinaryHead(columns, label, weight, label_vocabulary)
        return ClassHead(columns, label, weight, n_classes, label_vocabulary)
    except SettingError as error:
        for setting, argument in _ARGUMENTS.items():
            if error.setting == setting:
                error.args = (str(error).replace(setting, argument),)
                error.setting = argument
        raise


def _layers(
    hidden_units: Sequence[int],
    activation: Any,
    dropout: float | None,
    batch_norm: bool,
    prefix: str = "",
) -> dict[str, Any]:
    """Checked arguments of :class:`CannedModel`; ``prefix`` of their names in messages."""
    argument, use = f"{prefix}hidden_units", "[64, 32]"
    checks.of_type(argument, hidden_units, (list, tuple), "is not a list", use)
    if not hidden_units:
        raise SettingError(argument, hidden_units, "has no layers", use)
    for units in hidden_units:
        checks.whole(argument, units, 1)
    if dropout is not None and not 0 <= dropout < 1:
        raise SettingError(f"{prefix}dropout", dropout, "is not a share from 0 below 1", "0.1")
    return {
        "hidden_units": tuple(hidden_units),
        "activation": activation or "relu",
        "dropout": dropout,
        "batch_norm": batch_norm,
    }


def load(checkpoint: str | os.PathLike[str], model: Canned | Any) -> dict[str, np.ndarray]:
    """The weights for a model, by variable path; changes nothing.

    ``train.initial_weights`` takes the same checkpoint, and starts a training with it.

    Args:
        checkpoint: such as ``model_dir/model.ckpt-1000``.
        model: a canned model of ``sc.estimator``; or a ``keras.Model`` whose variable paths are
            the names in the checkpoint.

    Raises:
        InitialWeightsError: it is no checkpoint of an Estimator, or does not match the model. The
            subclass ``MismatchError`` names the variables.
    """
    from stagecraft.trainer_module.models.initial_weights import (
        estimator_checkpoint,
        loading,
        source,
    )

    found = source.find(os.fspath(checkpoint))
    if found.kind is not source.Kind.ESTIMATOR:
        problem = f"is {found.kind.value}, not the checkpoint of an Estimator"
        raise source.InitialWeightsError(found.path, problem)
    built = model.build() if isinstance(model, Canned) else model
    variables = {each.path: tuple(each.shape) for each in built.weights}
    values = estimator_checkpoint.read(found.path, variables)
    return loading.match(found.path, values, variables, ())
