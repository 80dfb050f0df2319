"""A task on a table: columns, a label, and perhaps a weight of each example."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stagecraft.common.errors import SettingError
from stagecraft.common.text import visible
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.data.tasks.mismatches import (
    NUMBERS,
    Mismatch,
    MismatchError,
    Observed,
    decimal_point,
    is_number,
    of_schema,
)
from stagecraft.trainer_module.data.tasks.tables.column import Column, ValueCheck, dense, present
from stagecraft.trainer_module.data.tasks.tables.columns import column
from stagecraft.trainer_module.data.tasks.task import ModelArguments, Served, Spec, Task

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Batch, Nest


class Table(Task):
    """Base of tasks that predict numbers from columns.

    The model's inputs are a dictionary of ``[batch, 1]``; its output is ``[batch, outputs]``. Its
    function is called with ``numeric``, names of float32 inputs; ``categorical``, a dictionary from
    the names of int64 inputs to their numbers of ids; and ``outputs``. If some inputs are ``[batch,
    length]``, ``lengths`` is a dictionary from their names.
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
            SettingError: there is no such kind of column, or two things have one name.
        """
        use = "{NAME: numeric}"
        checks.of_type("task.args.features", features, Mapping, "is not a mapping", use)
        self.columns = {name: column(name, given) for name, given in features.items()}
        self.label, self.weight = label, weight
        made = [name for key, each in self.columns.items() for name in each.inputs(key)]
        taken: set[str | None] = set()
        for role, names in (("features", made), ("label", self._labels), ("weight", [weight])):
            for name in names:
                if name in taken:
                    problem = "is also a feature, the label, or an input that a feature becomes"
                    raise SettingError(f"task.args.{role}", name, problem, "another feature")
                taken.add(name)
            taken |= self.columns.keys() | self._sources.keys()
        inputs = self._inputs
        self._arguments: dict[str, Any] = {
            "numeric": tuple(name for name, ids in inputs.items() if ids is None),
            "categorical": {name: ids for name, ids in inputs.items() if ids is not None},
            "outputs": outputs,
        }
        lengths = {n: k for key, each in self.columns.items() for n, k in each.lengths(key).items()}
        if lengths:
            self._arguments["lengths"] = lengths

    @property
    def sample_arguments(self) -> ModelArguments:  # type: ignore[override]
        """``numeric``, ``categorical``, ``outputs`` and perhaps ``lengths``."""
        return self._arguments

    @property
    def code(self) -> tuple[str, ...]:
        """The task's module, and the code of each column."""
        return (type(self).__module__, *(c for each in self.columns.values() for c in each.code))

    @property
    def files(self) -> Sequence[str]:
        """The files of the columns."""
        return tuple(file for each in self.columns.values() for file in each.files)

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
        from stagecraft.trainer_module.data import schema_reader

        observed = of_schema(schema_reader.read(schema_path))
        if found := [*self.mismatches(observed)]:
            raise MismatchError(found, schema_path)
        return dict(self._arguments)

    def setting_of(self, feature: str) -> tuple[str, object]:
        """The argument in ``task.args``; if several read the feature, one that needs a number."""
        if feature in (*self._labels, self.weight):
            return f"task.args.{'weight' if feature == self.weight else 'label'}", feature
        keys = [key for key, each in self.columns.items() if feature in each.sources(key)]
        wrong = [key for key in keys if self.columns[key].sources(key)[feature]]
        key = (wrong or keys)[0]
        kind = type(self.columns[key]).__name__.lower()
        return f"task.args.features.{key}", kind if key == feature else feature

    def mismatches(
        self, observed: Mapping[str, Observed], train: str = "train"
    ) -> Iterable[Mismatch]:
        """Features that are missing, texts in place of numbers, gaps in the label, lists."""
        yield from super().mismatches(observed, train)
        for name in dict.fromkeys(self._numbers):
            if name in observed and observed[name].kind not in NUMBERS:
                yield self._is_text(name, observed[name])
        for name in self._required:
            if name in observed and (gap := _gap(observed[name])):
                yield Mismatch(*self.setting_of(name), name, *gap)
        single = {
            source: f"features.{name}"
            for name, each in self.columns.items()
            if each.takes_gaps
            for source in each.sources(name)
        }
        single |= {name: "label" if name in self._labels else "weight" for name in self._required}
        uses = {"label": "task.name: multi_label", "weight": "a column of one value"}
        for name, argument in single.items():
            if name in observed and (most := observed[name].most) > 1:
                problem = f"takes one value, but an example has {most:,} in the column {name!r}"
                use = uses.get(argument, "kind: multi_hot or kind: sequence")
                yield Mismatch(f"task.args.{argument}", name, name, problem, use)
        for name, each in self.columns.items():
            yield from each.mismatches(name, observed, train)

    def _is_text(self, name: str, found: Observed) -> Mismatch:
        texts = [each for each in found.texts if not is_number(each)] or found.texts
        is_label = name in self._labels
        use = f"{name}: vocabulary, or numbers alone in the data"
        if is_label or name == self.weight:
            use = "task.name: classification" if is_label else "a column of numbers"
        if texts and (number := decimal_point(texts[0])):
            use = f"decimal points in the data, such as {number}"
        example = f", such as {visible(texts[0])[:60]!r}" if texts else f" ({found.kind})"
        return Mismatch(
            *self.setting_of(name),
            name,
            f"needs numbers, but the column {name!r} has texts{example}",
            use,
        )

    @property
    def _numbers(self) -> list[str]:
        """Raw features that must be numbers."""
        features = [name for name, needs_number in self._sources.items() if needs_number]
        return [*features, *self._labels, *filter(None, [self.weight])]

    @property
    def _labels(self) -> Sequence[str]:
        """The raw features that make the label."""
        return (self.label,)

    @property
    def _required(self) -> Sequence[str]:
        """The raw features of which each example has one value."""
        return (*self._labels, *filter(None, [self.weight]))

    @property
    def number_features(self) -> Sequence[str]:  # type: ignore[override]
        """The raw features of inputs that are numbers, the label and the weight."""
        found = {
            source: needs_number
            for name, each in self.columns.items()
            if None in each.inputs(name).values()
            for source, needs_number in each.sources(name).items()
        }
        own = {name for name in self._numbers if name in (*self._labels, self.weight)}
        return tuple(sorted(own | {source for source, is_number in found.items() if is_number}))

    def input_specs(self, arguments: ModelArguments) -> Nest:
        """A dictionary: ``[1]`` or ``[length]`` by name."""
        kinds = dict.fromkeys(arguments["numeric"], "float32")
        kinds |= dict.fromkeys(arguments["categorical"], "int64")
        lengths = arguments.get("lengths", {})
        return {name: Spec((lengths.get(name, 1),), kind) for name, kind in kinds.items()}

    def noise(
        self, arguments: ModelArguments, count: int, draw: np.random.Generator
    ) -> tuple[Nest, Nest]:
        """Normal numbers, any ids, and labels of :meth:`draw_labels`."""
        import numpy as np

        inputs: dict[str, Any] = {}
        lengths = arguments.get("lengths", {})
        for name in arguments["numeric"]:
            values = draw.standard_normal((count, lengths.get(name, 1)))
            inputs[name] = values.astype(np.float32)
        for name, ids in arguments["categorical"].items():
            inputs[name] = draw.integers(0, ids, (count, lengths.get(name, 1)))
        return inputs, self.draw_labels(count, draw).astype(np.float32)

    @abc.abstractmethod
    def draw_labels(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """Random labels ``[count]``."""

    def check_outputs(self, name: str, outputs: Nest, arguments: ModelArguments) -> None:
        """Refuses all but ``[batch, outputs]``."""
        checks.outputs(name, outputs, (arguments["outputs"],))

    @property
    def schema_features(self) -> Sequence[str]:
        """The raw features of the columns, the label and the weight."""
        return (*self._sources, *self._labels, *filter(None, [self.weight]))

    @property
    def features(self) -> Sequence[str]:
        """The inputs, the label and the weight."""
        return (*self._inputs, self.label, *filter(None, [self.weight]))

    @property
    def served_features(self) -> Sequence[str]:
        """The raw features of the columns."""
        return tuple(self._sources)

    def preprocess(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The transformed features: inputs; float32 label and weight ``[batch]``.

        Raises:
            MismatchError: the schema lacks a feature; the label or the weight may be missing; or a
                text stands where a number must be.
        """
        import tensorflow as tf

        where = "preprocessing_fn: the schema of Transform"
        kinds = {tf.string: "BYTES", tf.int64: "INT"}
        observed = {
            name: Observed(kinds.get(each.dtype, "FLOAT"), isinstance(each, tf.Tensor))
            for name, each in inputs.items()
        }
        if found := [*self.mismatches(observed)]:
            raise MismatchError(found, where)
        result: dict[str, Any] = {}
        for name, each in self.columns.items():
            result |= each.result(name, inputs)
        result[self.label] = self.to_label(self._raw_label(inputs))
        if self.weight:
            result[self.weight] = _float(inputs[self.weight])
        return result

    def _raw_label(self, inputs: Mapping[str, Any]) -> Any:
        """The argument of :meth:`to_label`, from all raw features."""
        return inputs[self.label]

    def to_label(self, raw: Any) -> Any:
        """The label as float32 ``[batch]``."""
        return _float(raw)

    def batch(self, features: Mapping[str, Any], weights: Any) -> Batch:
        """Inputs by name, the label, and the product of both weights."""
        from stagecraft.trainer_module.data.batch import Batch

        if self.weight and weights is not None:
            weights = weights * features[self.weight]
        inputs = {name: features[name] for name in self._inputs}
        return Batch(inputs, features.get(self.label), weights)

    @property
    def list_features(self) -> Sequence[str]:  # type: ignore[override]
        """The raw features of columns with several values."""
        return sorted(
            {
                source
                for name, each in self.columns.items()
                if each.lengths(name) and not each.takes_gaps
                for source in each.sources(name)
            }
        )

    def value_checks(self) -> Sequence[ValueCheck]:
        """The value checks of the columns."""
        return [c for name, each in self.columns.items() for c in each.value_checks(name)]

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
        """``serving_columns``, of a tensor for each raw feature: ``[batch]``, or ``[batch, n]``.

        An empty text or NaN is a missing value, and at the end of a list of any length no value.
        Integers have none.
        """
        import tensorflow as tf

        raw_spec, lists = served.raw_spec, self.list_features

        def serving_columns(**columns: Any) -> Any:
            return served.predict(
                {name: _raw(values, raw_spec[name]) for name, values in columns.items()}
            )

        specs = {
            name: tf.TensorSpec([None, None][: 1 + (name in lists)], raw_spec[name].dtype)
            for name in self.served_features
        }
        return {"serving_columns": (serving_columns, specs)}


def _float(raw: Any) -> Any:
    """A feature that each example has, as float32 ``[batch]``."""
    import tensorflow as tf

    return tf.cast(tf.reshape(raw, [-1]), tf.float32)


def _raw(values: Any, spec: Any) -> Any:
    """``[batch]`` or ``[batch, n]`` in the form of a parsed feature."""
    import tensorflow as tf

    if isinstance(spec, tf.io.FixedLenFeature):
        return tf.reshape(values, [-1, *spec.shape])
    values = values if values.shape.rank == 2 else values[:, tf.newaxis]
    if isinstance(spec, tf.io.RaggedFeature):
        return tf.RaggedTensor.from_tensor(values)
    places = tf.where(tf.ones_like(values, tf.bool))
    return tf.sparse.SparseTensor(places, tf.reshape(values, [-1]), tf.shape(values, tf.int64))


def _gap(found: Observed) -> tuple[str, str] | None:
    """Problem and use of a feature that some examples lack."""
    for split, (count, total) in found.missing.items():
        if count:
            problem = f"is missing in {count:,} of {total:,} examples of the split {split}"
            return problem, "data without these examples"
    if found.in_each:
        return None
    use = "presence { min_fraction: 1.0 min_count: 1 } shape {}"
    return "may be missing by the schema, but each example needs it", use
