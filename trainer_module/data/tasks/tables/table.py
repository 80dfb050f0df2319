"""A task on a table: columns, a label, and perhaps a weight of each example."""

from __future__ import annotations

import abc
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.data.tasks.tables.column import Column, dense, present
from stagecraft.trainer_module.data.tasks.tables.columns import column
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Served, Spec, Task

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Batch, Nest


class Table(Task):
    """Base of tasks that predict numbers from columns.

    The model's inputs are a dictionary of ``[batch, 1]``; its output is ``[batch, outputs]``. Its
    function is called with ``numeric``, names of float32 inputs; ``categorical``, a dictionary from
    the names of int64 inputs to their numbers of ids; and ``outputs``.
    """

    preprocessing_fn = "stagecraft.trainer_module.data.tasks.tables.preprocessing.preprocessing_fn"

    report_sections: Sequence[str] = ("features",)

    needs_schema = False
    is_table = True

    # With the labels and numbers that Transform scales, these train tables of 200 rows and more.
    train_defaults: Mapping[str, Any] = MappingProxyType(
        {
            "model": "dnn_64_32",
            "epochs": 30.0,
            "batch_size": 32,
            "optimizer": "adamw",
            "learning_rate": 0.003,
            "schedule": "one_cycle",
        }
    )

    def __init__(
        self,
        features: Mapping[str, Column | str | Mapping[str, Any]],
        label: str,
        weight: str | None = None,
        outputs: int = 1,
    ):
        """Declares the columns.

        Args:
            features: how each raw feature becomes inputs: a column, or its kind in YAML, such as
                ``numeric`` or ``{kind: vocabulary, size: 50}``.
            label: raw feature to predict; every example has it.
            weight: raw feature with the weight of each example, in loss and metrics; None: 1.
            outputs: numbers that the model returns for each example.

        Raises:
            SettingError: there is no such kind of column, two things have one name, or a name
                has a slash.
        """
        use = "{NAME: numeric}"
        checks.of_type("task.args.features", features, Mapping, "is not a mapping", use)
        self.columns = {name: column(name, given) for name, given in features.items()}
        self.label, self.weight = label, weight
        made = [name for key, each in self.columns.items() for name in each.inputs(key)]
        taken: set[str | None] = set()
        for role, names in (("features", made), ("label", [label]), ("weight", [weight])):
            for name in names:
                if name in taken:
                    problem = "is also a feature, the label, or an input that a feature becomes"
                    raise SettingError(f"task.args.{role}", name, problem, "another feature")
                if "/" in (name or ""):
                    problem, use = "has a slash, which names in Keras cannot have", "another name"
                    raise SettingError(f"task.args.{role}", name, problem, use)
                taken.add(name)
            taken |= self.columns.keys() | self._sources.keys()
        inputs = self._inputs
        self.sample_arguments = self._arguments = {
            "numeric": tuple(name for name, ids in inputs.items() if ids is None),
            "categorical": {name: ids for name, ids in inputs.items() if ids is not None},
            "outputs": outputs,
        }

    @property
    def code(self) -> tuple[str, ...]:
        """The task's module, and that of each column."""
        return (type(self).__module__, *(type(each).__module__ for each in self.columns.values()))

    def check(self) -> None:
        """Refuses a table without columns."""
        if not self.columns or not self.label:
            use = "args: {features: {NAME: numeric}, label: NAME}"
            raise SettingError("task.args", "{}", f"lacks features and label of {self.name}", use)

    @property
    def _sources(self) -> dict[str, bool]:
        """The raw features of the columns, and whether each must be a number."""
        found: dict[str, bool] = {}
        for name, each in self.columns.items():
            for source, needs_number in each.sources(name).items():
                found[source] = found.get(source, False) or needs_number
        return found

    @property
    def _inputs(self) -> dict[str, int | None]:
        return {
            name: ids
            for feature, each in self.columns.items()
            for name, ids in each.inputs(feature).items()
        }

    def model_arguments(self, schema_path: str) -> ModelArguments:
        """``numeric``, ``categorical`` and ``outputs``."""
        from stagecraft.trainer_module.data import labels

        labels.check_features(schema_path, self.schema_features)
        known = {feature.name: feature for feature in labels.read(schema_path).feature}
        for name in self._numbers:
            _check_number(schema_path, known[name])
        for name in filter(None, (self.label, self.weight)):
            if known[name].presence.min_fraction < 1 or not known[name].HasField("shape"):
                raise _may_be_missing(schema_path, name)
        return dict(self._arguments)

    @property
    def _numbers(self) -> list[str]:
        """Raw features that must be numbers."""
        features = [name for name, needs_number in self._sources.items() if needs_number]
        return [*features, self.label, *filter(None, [self.weight])]

    @property
    def number_features(self) -> Sequence[str]:  # type: ignore[override]
        """The raw features of inputs that are numbers, the label and the weight."""
        found = {
            source: needs_number
            for name, each in self.columns.items()
            if None in each.inputs(name).values()
            for source, needs_number in each.sources(name).items()
        }
        own = {name for name in self._numbers if name in (self.label, self.weight)}
        return tuple(sorted(own | {source for source, is_number in found.items() if is_number}))

    def input_specs(self, arguments: ModelArguments) -> Nest:
        """A dictionary: ``[1]`` by name."""
        numbers = {name: Spec((1,)) for name in arguments["numeric"]}
        return numbers | {name: Spec((1,), "int64") for name in arguments["categorical"]}

    def noise(
        self, arguments: ModelArguments, count: int, draw: np.random.Generator
    ) -> tuple[Nest, Nest]:
        """Normal numbers, any ids, and labels of :meth:`draw_labels`."""
        import numpy as np

        inputs: dict[str, Any] = {
            name: draw.standard_normal((count, 1)).astype(np.float32)
            for name in arguments["numeric"]
        }
        for name, ids in arguments["categorical"].items():
            inputs[name] = draw.integers(0, ids, (count, 1))
        return inputs, self.draw_labels(count, draw).astype(np.float32)

    @abc.abstractmethod
    def draw_labels(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """Random labels ``[count]``."""

    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Refuses all but ``[batch, outputs]``."""
        shape = getattr(outputs, "shape", None)
        shown = type(outputs).__name__ if shape is None else tuple(shape)
        if shown != (3, arguments["outputs"]):
            raise UserError(
                f"train.model: {name} returns {shown} for a batch of 3; expected "
                f"[batch, {arguments['outputs']}]",
                setting="train.model",
                value=name,
            )

    @property
    def schema_features(self) -> Sequence[str]:
        """The raw features of the columns, the label and the weight."""
        return (*self._sources, self.label, *filter(None, [self.weight]))

    @property
    def features(self) -> Sequence[str]:
        """The inputs, the label and the weight."""
        return (*self._inputs, self.label, *filter(None, [self.weight]))

    @property
    def served_features(self) -> Sequence[str]:
        """The raw features of the columns."""
        return tuple(self._sources)

    def preprocess(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The transformed features: inputs ``[batch, 1]``; float32 label and weight ``[batch]``.

        Raises:
            UserError: the schema lacks a feature; the label or the weight may be missing; or a text
                stands where a number must be.
        """
        import tensorflow as tf

        from stagecraft.schemas import missing_features

        where = "preprocessing_fn: the schema of Transform"
        missing_features.check(
            where,
            inputs,
            self.schema_features,
            "add each missing feature to the schema, or remove it from task.args",
        )
        for name in filter(None, (self.label, self.weight)):
            if isinstance(inputs[name], tf.sparse.SparseTensor):
                raise _may_be_missing(where, name)
        for name in self._numbers:
            if inputs[name].dtype == tf.string:
                raise _no_number(where, name, "BYTES")
        result: dict[str, Any] = {}
        for name, each in self.columns.items():
            result |= each.result(name, inputs)
        result[self.label] = self.to_label(inputs[self.label])
        if self.weight:
            result[self.weight] = _numbers(inputs[self.weight])
        return result

    def to_label(self, raw: Any) -> Any:
        """The label as float32 ``[batch]``."""
        return _numbers(raw)

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """Inputs by name, the label, and the product of both weights."""
        from stagecraft.trainer_module.data.batch import Batch

        if self.weight and weights is not None:
            weights = weights * features[self.weight]
        inputs = {name: features[name] for name in self._inputs}
        return Batch(inputs, features.get(self.label), weights)

    def parse_request(self, examples: Any, raw_spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Parses as the base class does; a number or text that is missing becomes NaN or empty.

        A column without gaps in the train split has a dense feature, and for these two Transform
        knows a sign of absence. A whole number has none: TensorFlow then refuses the request, and
        names the column.
        """
        import tensorflow as tf

        spec = {name: raw_spec[name] for name in self.served_features}
        whole = {
            s for k, each in self.columns.items() if not each.takes_gaps for s in each.sources(k)
        }
        filled = {
            name: tf.io.VarLenFeature(each.dtype)
            for name, each in spec.items()
            if isinstance(each, tf.io.FixedLenFeature)
            and not (each.dtype.is_integer or name in whole)
        }
        found = dict(tf.io.parse_example(examples, spec | filled))
        for name in filled:
            missing = "" if spec[name].dtype == tf.string else float("nan")
            found[name] = tf.reshape(
                dense(present(name, found[name]), missing), [-1, *spec[name].shape]
            )
        return found

    def plain_signatures(self, served: Served) -> Mapping[str, tuple[Callable[..., Any], Any]]:
        """``serving_columns``, of a tensor ``[batch]`` for each raw feature.

        An empty text or NaN is a missing value. Integers have none. See :func:`arguments` for the
        names of the tensors.
        """
        import tensorflow as tf

        raw_spec = served.raw_spec
        names = arguments(self.served_features)

        def serving_columns(**columns: Any) -> Any:
            return served.predict(
                {name: _raw(columns[key], raw_spec[name]) for key, name in names.items()}
            )

        specs = {
            key: tf.TensorSpec([None], raw_spec[name].dtype, name=key)
            for key, name in names.items()
        }
        return {"serving_columns": (serving_columns, specs)}


def _numbers(raw: Any) -> Any:
    """A feature that each example has, as float32 ``[batch]``."""
    import tensorflow as tf

    return tf.cast(tf.reshape(raw, [-1]), tf.float32)


def arguments(names: Sequence[str]) -> dict[str, str]:
    """Names that TensorFlow accepts for arguments as they are, for raw features: ``{safe: name}``.

    ``_`` replaces all but ASCII letters and digits; ``arg_`` comes before another first character
    than a letter. If that makes names equal, the later ones get ``_2``, ``_3`` and so on; a name
    that needs no change keeps it.
    """
    safe = {name: re.sub(r"\W", "_", name, flags=re.ASCII) for name in names}
    safe = {name: each if each[:1].isalpha() else f"arg_{each}" for name, each in safe.items()}
    found = {name: name for name, each in safe.items() if name == each}
    for name in names:
        if name not in found.values():
            numbered = (f"{safe[name]}_{number}" for number in itertools.count(2))
            free = itertools.chain([safe[name]], numbered)
            found[next(each for each in free if each not in found)] = name
    return {each: name for name in names for each in found if found[each] == name}


def _raw(values: Any, spec: Any) -> Any:
    """``[batch]`` in the form of a parsed feature."""
    import tensorflow as tf

    if isinstance(spec, tf.io.FixedLenFeature):
        return tf.reshape(values, [-1, *spec.shape])
    known = tf.ones_like(values, tf.bool)
    if values.dtype == tf.string:
        known = tf.not_equal(values, "")
    elif values.dtype.is_floating:
        known = tf.logical_not(tf.math.is_nan(values))
    rows = tf.where(known)
    return tf.sparse.SparseTensor(
        tf.concat([rows, tf.zeros_like(rows)], axis=1),
        tf.boolean_mask(values, known),
        [tf.size(values, tf.int64), 1],
    )


def _may_be_missing(schema_path: str, name: str) -> UserError:
    use = "presence { min_fraction: 1.0 min_count: 1 } shape {}"
    return UserError(
        f"{schema_path}: feature {name!r} may be missing, but each example needs it; remove the "
        f"examples without it, and use {use}",
        file=schema_path,
        record=name,
        suggestion=use,
    )


def _check_number(schema_path: str, feature: Any) -> None:
    from tensorflow_metadata.proto.v0 import schema_pb2

    if feature.type not in (schema_pb2.INT, schema_pb2.FLOAT):
        raise _no_number(schema_path, feature.name, schema_pb2.FeatureType.Name(feature.type))


def _no_number(schema_path: str, name: str, kind: str) -> UserError:
    return UserError(
        f"{schema_path}: feature {name!r} has the type {kind}, but the task needs a number; use "
        "type: INT or FLOAT, or the kind vocabulary or hashed for the column",
        file=schema_path,
        record=name,
        value=kind,
    )
