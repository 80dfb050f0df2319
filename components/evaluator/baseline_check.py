"""Whether a model can be compared with the last blessed model: before TFMA, which fails otherwise.

The last blessed model parses the examples by the types of the data that it was trained on. A column
of whole numbers in one run and of decimals in the next has two types.
"""

from __future__ import annotations

import itertools
import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow_model_analysis.proto import config_pb2  # newer TFMA has no shorter names for it
from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import path_utils

from stagecraft.common.errors import UserError, cleaned
from stagecraft.components.object_store import filesystem
from stagecraft.trainer_module.data.tasks.tables.classifier import listed
from stagecraft.trainer_module.training.assets import CLASSES, METRICS

_TRIED = 100
"""Examples of each file of a split that the last blessed model is tried with."""

_KINDS = {"int64_list": "int64", "float_list": "float", "bytes_list": "string"}
_PARSED = re.compile(
    r"Name: [^,]*, (?:Key|Feature): (?P<column>.*?)(?:, Index: \d+\.| \(data type: (?P<type>\w+)\))"
)
_EXPECTED = re.compile(r"[Ee]xpected type: (\w+)")
"""Messages of tensorflow/core/util/example_proto_fast_parsing.cc."""


class BaselineError(UserError):
    """The model cannot be compared with the last blessed model, although it has to be."""

    def __init__(
        self, baseline: str, why: str, *, column: str = "", trained: str = "", found: str = ""
    ):
        """Makes the error.

        Args:
            baseline: address of the last blessed model.
            why: a phrase with a verb.
            column: that the last blessed model cannot read.
            trained: its type there, such as int64.
            found: its type in the examples; "missing" if they lack it.
        """
        self.why = why
        self.column, self.trained, self.found = column, trained, found
        restore = f"Restore the column {column}, or use" if column else "Use"
        super().__init__(
            f"evaluate.not_worse: the model cannot be compared with the last blessed model "
            f"({baseline}), which {why}. {restore} evaluate.not_worse: false for one run: it needs "
            "no comparison, and if it blesses its model, later models are compared with that one.",
            setting="evaluate.not_worse",
            value=True,
            suggestion="evaluate.not_worse: false",
            file=baseline,
            record=column,
        )


def check(
    model: Sequence[types.Artifact],
    baseline: Sequence[types.Artifact],
    examples: Sequence[types.Artifact],
    splits: Sequence[str],
    config: config_pb2.EvalConfig,
) -> str:
    """Finds out whether TFMA can compare a model with the last blessed one.

    Args:
        splits: that TFMA reads.

    Returns:
        Why it cannot, a phrase after "the last blessed model"; empty: it can.

    Raises:
        BaselineError: it cannot, and a metric has a bound for the change.
    """
    folder = _saved_model(baseline)
    models = _saved_model(model), folder
    ours, theirs = (_read(each, METRICS) for each in models)
    our_classes, their_classes = (_read(each, CLASSES) or [] for each in models)
    if ours != theirs:
        error = BaselineError(folder, f"has other metrics: {theirs}, not {ours}")
    elif our_classes != their_classes:
        both = (listed(each) or "none with names" for each in (their_classes, our_classes))
        error = BaselineError(folder, f"has other classes: {', not '.join(both)}")
    else:
        [spec, *_] = config.model_specs
        found = _unreadable(folder, spec.signature_name, examples, splits)
        if found is None:
            return ""
        error = found
    if any(map(_requires_comparison, _metrics(config))):
        raise error
    return error.why


def _unreadable(
    folder: str, signature: str, examples: Sequence[types.Artifact], splits: Sequence[str]
) -> BaselineError | None:
    """Calls a signature of the last blessed model with some examples; what is wrong with them.

    Does not try a model that TFMA calls in another way than with serialized examples alone.
    """
    loaded = tf.saved_model.load(folder)
    call = loaded.signatures.get(signature) if signature else None
    if call is None:
        return None
    inputs = call.structured_input_signature[1]
    if [spec.dtype for spec in inputs.values()] != [tf.string]:
        return None
    [name] = inputs
    for records in _records(examples, splits):
        try:
            call(**{name: tf.constant(records)})
        except tf.errors.InvalidArgumentError as error:
            return _explained(folder, error.message, records)
    return None


def _explained(folder: str, message: str, records: Sequence[bytes]) -> BaselineError:
    parsed, expected = _PARSED.search(message), _EXPECTED.search(message)
    if parsed is None or not (expected or parsed["type"]):
        cause = message.rpartition("\n\n")[2].partition("[[")[0]  # without stack and node
        return BaselineError(folder, f"cannot read the examples: {cleaned(cause, 200)}")
    column, trained = parsed["column"], parsed["type"] or (expected and expected[1]) or ""
    others = [each for each in (_kind(record, column) for record in records) if each != trained]
    found = others[0] if others else "another"
    return BaselineError(
        folder,
        f"cannot read the examples: it was trained on the column {column} of type {trained}, and "
        + ("the examples lack the column" if found == "missing" else f"now the type is {found}"),
        column=column,
        trained=trained,
        found=found,
    )


def _kind(record: bytes, column: str) -> str:
    """Type of a column in a serialized tf.Example."""
    features = tf.train.Example.FromString(record).features.feature
    kind = features[column].WhichOneof("kind") if column in features else None
    return _KINDS[kind] if kind else "missing"


def _records(examples: Sequence[types.Artifact], splits: Sequence[str]) -> Iterator[list[bytes]]:
    """The first serialized examples of each file of TFRecords; TFMA also reads other files."""
    for artifact in examples:
        for split in splits:
            pattern = posixpath.join(artifact_utils.get_split_uri([artifact], split), "*")
            for path in sorted(fileio.glob(pattern)):
                compression = "GZIP" if str(path).endswith(".gz") else ""
                records = tf.data.TFRecordDataset(path, compression).take(_TRIED)
                try:
                    found = list(records.as_numpy_iterator())
                except tf.errors.DataLossError:
                    continue
                if found:
                    yield found


def _requires_comparison(metric: config_pb2.MetricConfig) -> bool:
    """Whether a blessing needs a bounded change of a metric."""
    bounds = [metric.threshold, *(each.threshold for each in metric.per_slice_thresholds)]
    return any(each.HasField("change_threshold") for each in bounds)


def _metrics(config: config_pb2.EvalConfig) -> Iterator[config_pb2.MetricConfig]:
    return itertools.chain.from_iterable(spec.metrics for spec in config.metrics_specs)


def _saved_model(model: Sequence[types.Artifact]) -> str:
    return str(path_utils.serving_model_path(artifact_utils.get_single_uri(list(model))))


def _read(folder: str, asset: str) -> Any:
    """A JSON file of a model; None for one without it."""
    content = filesystem.read(posixpath.join(folder, asset))
    return None if content is None else json.loads(content)
