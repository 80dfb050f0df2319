"""Compares what a model's inputs and labels meant to its weights with what they mean now.

Weights belong to a Transform graph: a row of an embedding belongs to a token, a kernel to a scale,
an output to a class. Both graphs transform the same raw values: all tokens of both vocabularies,
all numbers in both graphs and their neighbors, and values that neither graph contains.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

from stagecraft.common.errors import cleaned
from stagecraft.trainer_module.data import schema_reader
from stagecraft.trainer_module.data.tasks.tables import classifier, columns
from stagecraft.trainer_module.models.initial_weights.source import (
    TRANSFORM_GRAPH,
    InitialWeightsError,
    transform_graph,
)

_CLOSE = 1e-5
"""Relative difference of transformed numbers that is the rounding of float32."""

_MOST = 1 << 16
"""Numbers of one constant that are tried."""

_MOST_ROWS = 4096
"""Values that are tried one by one."""

_SHOWN = 5

_PARTS = (
    tft.TFTransformOutput.TRANSFORM_FN_DIR,
    tft.TFTransformOutput.TRANSFORMED_METADATA_DIR,
    tft.TFTransformOutput.RAW_METADATA_DIR,
)


def keep(transform: tft.TFTransformOutput, folder: str | os.PathLike[str]) -> None:
    """Copies a Transform graph into a folder, next to the weights of its training."""
    graph = os.path.dirname(transform.transform_savedmodel_dir)
    copy(graph, os.path.join(folder, TRANSFORM_GRAPH))


def copy(graph: str, target: str) -> None:
    """Copies the folder of a Transform graph, without statistics."""
    for part in _PARTS:
        for place, _, names in tf.io.gfile.walk(os.path.join(graph, part)):
            into = os.path.normpath(os.path.join(target, os.path.relpath(place, graph)))
            tf.io.gfile.makedirs(into)
            for name in names:
                source = os.path.join(place, name)
                tf.io.gfile.copy(source, os.path.join(into, name), overwrite=True)


class Change(NamedTuple):
    """A transformed feature that another graph makes in another way."""

    feature: str
    raw: str
    """The raw feature; empty: several together."""
    value: str
    """A raw value whose transformed value differs."""
    before: str
    after: str
    ids: Mapping[int, int] | None = None
    """Id now -> id before; None: the feature is no id, or two old ids have become one."""
    words: Words | None = None
    """Of ``ids``; None: they are no places in vocabularies."""
    is_scale: bool = False
    """Whether the feature is a number, or the interval of a number."""

    def __str__(self) -> str:
        name = self.feature if self.raw in ("", self.feature) else f"{self.feature} ({self.raw})"
        return f"{name} of {self.value} was {self.before} and is {self.after}"


class Words(NamedTuple):
    """How the vocabulary of a feature has changed."""

    new: frozenset[int]
    """Ids of words that were not in the vocabulary."""
    carried: int
    """Number of words in both vocabularies."""
    dropped: int
    """Number of words that are no longer in the vocabulary."""


class Move(NamedTuple):
    """The places that the rows of a variable had before."""

    axis: int
    places: np.ndarray
    """Place before of each row, int ``[rows]``; -1: the row is new."""
    words: Words

    def __call__(self, before: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        """The rows at their new places; new ones have the values of ``fresh``."""
        result = np.moveaxis(np.array(fresh, before.dtype), self.axis, 0)
        source, known = np.moveaxis(before, self.axis, 0), self.places >= 0
        result[known] = source[self.places[known]]
        return np.moveaxis(result, 0, self.axis)

    def fits(self, before: np.ndarray, fresh: np.ndarray) -> bool:
        """Whether the values differ in the number of rows alone."""
        shapes = [list(each.shape) for each in (before, fresh)]
        if before.ndim != fresh.ndim:
            return False
        rows = [shape.pop(self.axis) for shape in shapes]
        is_long = len(self.places) == rows[1] and self.places.max() < rows[0]
        return shapes[0] == shapes[1] and is_long

    def counts(self) -> dict[str, int]:
        """For the record."""
        _, carried, dropped = self.words
        return {"carried": carried, "new": len(self.words.new), "dropped": dropped}


class MeaningError(InitialWeightsError):
    """The weights belong to another Transform graph, and cannot be carried over."""

    def __init__(self, source: pathlib.Path, graph: pathlib.Path, changes: Collection[Change]):
        listed = [str(change) for change in changes]
        more = f"; and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
        use = f"transform.graph: {graph}"
        super().__init__(
            source,
            "the weights belong to another Transform graph, and the data of this run give other "
            f"inputs or labels: {'; '.join(listed[:_SHOWN])}{more}. Keep the graph of the weights "
            f"({use}), or list the variables that read these features in "
            "train.initial_weights_skip",
        )
        self.suggestion = use
        self.changes = tuple(changes)
        """One for each feature."""


class Carried(NamedTuple):
    """Weights that fit the new graph."""

    weights: dict[str, np.ndarray]
    compared: bool
    """Whether both graphs are known and could be compared."""
    features: tuple[str, ...] = ()
    """Features whose rows have other places now."""
    moves: Mapping[str, Move] = MappingProxyType({})
    """Path of each variable whose rows a warm start has moved."""
    rescaled: tuple[Change, ...] = ()
    """Numbers that a warm start gives another scale."""


def carried(
    source: pathlib.Path,
    weights: Mapping[str, np.ndarray],
    model: keras.Model,
    transform: tft.TFTransformOutput | None,
    features: Collection[str],
    is_skipped: Callable[[str], bool],
    warm: bool = False,
) -> Carried:
    """The weights, with the rows of embeddings at the places that their tokens have now.

    In a warm start, vocabularies and classes may grow: rows of new words, and outputs of new
    classes, keep the values that they have in ``model``. Numbers may get another scale.

    Args:
        source: file or folder of the weights; their graph lies next to them.
        weights: variable path -> value.
        transform: of this training; None: not known yet.
        features: transformed features that the task uses.
        is_skipped: whether a variable, by its path, keeps its random values.
        warm: whether the training continues that of the weights (``train.warm_start``).

    Raises:
        MeaningError: an input or a label that loaded weights read has another meaning.
    """
    before = transform_graph(source)
    if transform is None or before is None:
        return Carried(dict(weights), False)
    after = pathlib.Path(transform.transform_savedmodel_dir).parent
    found = compare(before, after, features)
    inputs = _input_names(model)
    result, moved, refused, rescaled = dict(weights), [], [], []
    moves: dict[str, Move] = {}
    for change in found.changes:
        if change.feature not in features:
            continue
        readers = _readers(model, change.feature) if change.feature in inputs else _heads(model)
        read = [weight.path for layer in readers or () for weight in layer.layer.weights]
        if read and all(map(is_skipped, read)):
            continue
        found_moves = _moves(change, readers or ()) if warm else {}
        if found_moves and not moves.keys() & found_moves.keys():  # an embedding of two features
            moved.append(change.feature)
            moves |= found_moves
            continue
        by_rows = bool(readers) and all(each.by_rows for each in readers or ())
        if warm and change.is_scale and not change.words and not (change.ids and by_rows):
            rescaled.append(change)
            continue
        if change.ids is None or not by_rows:
            refused.append(change)
            continue
        moved.append(change.feature)
        for path in read:
            if path in result and not is_skipped(path):
                result[path] = _moved(result[path], change.ids)
    if refused:
        raise MeaningError(source, before, refused)
    fresh = {weight.path: weight for weight in model.weights if weight.path in moves}
    for path, move in list(moves.items()):
        value = fresh[path].numpy()
        if path in result and not is_skipped(path) and move.fits(result[path], value):
            result[path] = move(result[path], value)
        else:
            del moves[path]
    compared = found.features is None or {*features} <= found.features
    return Carried(result, compared, tuple(moved), moves, tuple(rescaled))


def _moves(change: Change, readers: Sequence[_Reader]) -> dict[str, Move]:
    """The moves of the variables of all layers that read a feature; empty: some cannot be moved."""
    result = {}
    for reader in readers:
        if reader.axis is None or change.ids is None or change.words is None:
            return {}
        for weight in reader.layer.weights:
            places = [
                -1 if row in change.words.new else change.ids.get(row, -1)
                for row in range(weight.shape[reader.axis])
            ]
            result[weight.path] = Move(reader.axis, np.array(places), change.words)
    return result


def _moved(rows: np.ndarray, ids: Mapping[int, int]) -> np.ndarray:
    """Each row at its new place; a row that no value reaches stays."""
    places = np.arange(len(rows))
    known = {new: old for new, old in ids.items() if new < len(rows) and old < len(rows)}
    places[list(known)] = list(known.values())
    return rows[places]


def _input_names(model: keras.Model) -> list[str]:
    return [tensor.name for tensor in tf.nest.flatten(getattr(model, "inputs", None) or [])]


class _Reader(NamedTuple):
    """A layer whose weights meet an input, or make an output."""

    layer: Any
    axis: int | None
    """Axis of its weights that an id counts: 0 of an ``Embedding`` that takes the input itself, -1
    of a ``Dense`` layer that gives the output; None: unknown."""

    @property
    def by_rows(self) -> bool:
        """Whether it is an ``Embedding`` that takes the input itself."""
        return self.axis == 0


def _readers(model: keras.Model, name: str) -> list[_Reader] | None:
    """The first layers with weights after an input; None: not known."""
    found: list[_Reader] = []
    layers = [
        layer
        for layer in model._flatten_layers(include_self=False)
        if not isinstance(layer, keras.layers.InputLayer)
    ]
    reached = {id(tensor) for tensor in model.inputs if tensor.name == name}
    given = set(reached)
    for _ in layers:
        before = len(reached)
        for layer in layers:
            for node in layer._inbound_nodes:
                read = {id(tensor) for tensor in node.arguments.keras_tensors} & reached
                if not read:
                    continue
                if not layer.weights:
                    reached |= set(map(id, node.outputs))
                elif all(each.layer is not layer for each in found):
                    by_rows = type(layer) is keras.layers.Embedding and read <= given
                    found.append(_Reader(layer, 0 if by_rows else None))
        if len(reached) == before:
            break
    return found or None


def _heads(model: keras.Model) -> list[_Reader] | None:
    """The last layers with weights before each output; None: not known."""
    found: list[_Reader] = []
    for output in tf.nest.flatten(getattr(model, "outputs", None) or []):
        tensor = output
        while True:
            operation = getattr(tensor, "_keras_history", (None,))[0]
            if operation is None:
                return None
            if getattr(operation, "weights", []):
                is_dense = type(operation) is keras.layers.Dense
                by_outputs = is_dense and tuple(tensor.shape) == tuple(output.shape)
                found.append(_Reader(operation, -1 if by_outputs else None))
                break
            read = operation._inbound_nodes[0].arguments.keras_tensors
            if len(read) != 1:
                return None
            [tensor] = read
    return found or None


class Comparison(NamedTuple):
    """A comparison of what two graphs make of the same raw values."""

    changes: list[Change]
    features: frozenset[str] | None
    """Transformed features that were compared; None: all, since the graphs are the same."""


def compare(
    before: pathlib.Path, after: pathlib.Path, features: Collection[str] = ()
) -> Comparison:
    """Finds the transformed features that two graphs make in different ways.

    Args:
        before: folder that TensorFlow Transform wrote, of the weights.
        after: the same, of the new training.
        features: transformed features, of which some may be labels.
    """
    pair = _Graph(before), _Graph(after)
    found = [*_of_classes(pair), *_of_numbers(pair, features)]
    if pair[0].structure == pair[1].structure:
        return Comparison(found, None)
    texts = sorted({text for graph in pair for text in graph.texts})
    numbers = np.unique(np.concatenate([graph.numbers for graph in pair]))
    probes: dict[str, _Probes] = {}
    for name, spec in pair[1].raw_spec.items():
        if name in pair[0].raw_spec and pair[0].raw_spec[name].dtype == spec.dtype:
            probes[name] = _probes(spec.dtype, texts, numbers)
        else:
            kind = pair[0].raw_spec[name].dtype.name if name in pair[0].raw_spec else "unknown"
            found.append(Change(name, name, "any value", kind, spec.dtype.name))
    compared: set[str] = set()
    whole = dict(probes)  # without features of which some values fail

    def add(group: Mapping[str, _Probes]) -> None:
        outputs = [graph.features(group) for graph in pair]
        old, new = ({} if each is None else each for each in outputs)
        for feature in sorted((old.keys() & new.keys()) - compared):
            if (change := _change(feature, group, old[feature], new[feature])) is not None:
                found.append(change)
            compared.add(feature)

    for name, each in probes.items():
        add({name: each})
        if any(name in graph.fragile for graph in pair):
            del whole[name]
    add(_together(whole))
    return Comparison(found, frozenset(compared))


class _Probes(NamedTuple):
    """Raw values of one feature."""

    values: np.ndarray
    """``[count]``"""
    unknown: np.ndarray
    """Whether no graph contains the value; bool ``[count]``."""
    words: np.ndarray | None = None
    """Whether a graph contains the value as a text; bool ``[count]``; None: no value is a text."""


def _probes(dtype: tf.DType, texts: list[str], numbers: np.ndarray) -> _Probes:
    if dtype == tf.string:
        unseen = [f"\x01{number}" for number in range(64)]
        values = np.array([text.encode() for text in ["", *texts, *unseen]], object)
        place = np.arange(len(values))
        # An empty text, also that after the last line of a file, is no word.
        return _Probes(values, place > len(texts), (place <= len(texts)) & (values != b""))
    if dtype.is_integer:
        whole = [int(text) for text in texts if re.fullmatch(r"-?\d{1,15}", text)]
        near = np.concatenate([np.floor(numbers) + step for step in (-1, 0, 1)])
        near = near[np.abs(near) < 2**53].astype(np.int64)
        known = np.unique(np.concatenate([near, np.arange(-3, 300), np.array(whole, np.int64)]))
        unseen_numbers = np.arange(64) * 7_919 + 2**54 + 1
        values = np.concatenate([known, unseen_numbers])
        unknown = np.arange(len(values)) >= len(known)
        return _Probes(values, unknown, np.isin(values, whole) if whole else None)
    powers = 10.0 ** np.arange(-6, 10)
    exact = numbers.astype(np.float32)
    near = np.concatenate(
        [exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))]
    )
    values = np.unique(np.concatenate([near, [0], powers, -powers, 2.5 * powers]))
    values = values[np.isfinite(values)].astype(dtype.as_numpy_dtype)
    return _Probes(values, np.zeros(len(values), bool))


def _together(probes: Mapping[str, _Probes]) -> dict[str, _Probes]:
    """All features at once, for features that depend on several of them."""
    count = max((len(each.values) for each in probes.values()), default=0)
    return {
        name: _Probes(np.resize(each.values, count), np.resize(each.unknown, count))
        for name, each in probes.items()
    }


def _change(
    feature: str, group: Mapping[str, _Probes], old: np.ndarray, new: np.ndarray
) -> Change | None:
    count = len(next(iter(group.values())).values)
    rows = [np.reshape(part, [len(part), -1]) for part in (old, new)]
    if rows[0].shape != rows[1].shape or rows[0].dtype != rows[1].dtype:
        before, after = (f"{part.dtype} {list(part.shape[1:])}" for part in (old, new))
        return None if before == after else Change(feature, "", "any value", before, after)
    if rows[0].dtype.kind == "f":
        both = np.stack(rows).astype(np.float64)
        bound = _CLOSE * (1 + np.abs(both).max(axis=0, initial=0.0, where=np.isfinite(both)))
        equal = np.isclose(both[0], both[1], rtol=0, atol=0, equal_nan=True)
        with np.errstate(invalid="ignore"):
            differs = ~equal & ~(np.abs(both[0] - both[1]) <= bound)
    else:
        differs = rows[0] != rows[1]
    where = np.flatnonzero(differs.any(axis=1))
    if not len(where):
        return None
    [name, probes] = next(iter(group.items()))
    alone = len(group) == 1
    known = [row for row in where if not probes.unknown[min(row, count - 1)]]
    row = (known or [*where])[0]
    raw = [repr(_plain(each.values[row])) for each in group.values() if row < len(each.values)]
    ids = words = None
    if alone and rows[0].dtype.kind in "iu" and rows[0].shape[1] == 1:
        unknown = np.append(probes.unknown, True)[: len(old)]
        ids = _ids(rows[0][:, 0], rows[1][:, 0], unknown)
        if ids is not None and probes.words is not None:
            is_word = np.append(probes.words, False)[: len(old)]
            others = ~is_word & ~unknown
            # Of numbers in a vocabulary, all others are unknown; of intervals, they are not.
            if probes.values.dtype.kind == "O" or all(
                np.isin(ids_[others], ids_[unknown]).all()
                for ids_ in (rows[0][:, 0], rows[1][:, 0])
            ):
                words = _words(rows[0][:, 0], rows[1][:, 0], unknown, is_word)
    is_scale = rows[0].dtype.kind == "f" or (alone and probes.values.dtype.kind in "iuf")
    value = cleaned(", ".join(raw[:3]) or "a missing value", 80)
    column = int(np.flatnonzero(differs[row])[0])
    before, after = (cleaned(str(_plain(part[row, column])), 40) for part in rows)
    return Change(feature, name if alone else "", value, before, after, ids, words, is_scale)


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _ids(old: np.ndarray, new: np.ndarray, unknown: np.ndarray) -> Mapping[int, int] | None:
    """Id now -> id before; None: values that one id stands for had several.

    An id of unknown values now also stands for tokens that are no longer in the vocabulary; they
    become unknown.
    """
    result = {}
    for place in np.unique(new):
        rows = new == place
        if np.any(rows & unknown):
            rows &= unknown
        earlier = np.unique(old[rows])
        if len(earlier) > 1:
            return None
        result[int(place)] = int(earlier[0])
    return result


def _words(old: np.ndarray, new: np.ndarray, unknown: np.ndarray, is_word: np.ndarray) -> Words:
    """The words among probes whose ids are ``old`` and ``new``."""
    was, is_now = (is_word & ~np.isin(ids, ids[unknown]) for ids in (old, new))
    added = frozenset(map(int, new[is_now & ~was]))
    carried, dropped = (len(np.unique(ids)) for ids in (new[was & is_now], old[was & ~is_now]))
    return Words(added - set(map(int, new[was])), carried, dropped)


def _of_classes(pair: tuple[_Graph, _Graph]) -> list[Change]:
    """The class names of a schema, if they differ."""
    old, new = (graph.class_names for graph in pair)
    if old is None or new is None or old == new:
        return []
    names = ["none" if place >= len(new) else new[place] for place in range(len(old))]
    place = next((place for place, name in enumerate(old) if names[place] != name), len(old))
    before = old[place] if place < len(old) else "none"
    after = new[place] if place < len(new) else "none"
    ids = {new.index(name): old.index(name) for name in old if name in new}
    words = Words(frozenset(range(len(new))) - ids.keys(), len(ids), len(old) - len(ids))
    shown = cleaned(before, 40), cleaned(after, 40)
    return [Change("label", "label", f"class {place}", *shown, ids, words)]


def _of_numbers(pair: tuple[_Graph, _Graph], features: Collection[str]) -> Iterator[Change]:
    """Numbers that are labels, if they count other classes: Transform leaves them as they are."""
    for feature in features:
        old, new = (graph.numbers_of_classes(feature) for graph in pair)
        if old and new and old != new:
            shown = classifier.listed(old), classifier.listed(new)
            ids = {new.index(name): old.index(name) for name in old if name in new}
            yield Change(feature, feature, "all classes", *shown, ids)


class _Graph:
    """A Transform graph in a folder."""

    def __init__(self, folder: pathlib.Path):
        output = self._output = tft.TFTransformOutput(str(folder))
        loader = SavedModelLoader(output.transform_savedmodel_dir)
        # In a graph, features that depend on a missing one are not computed, and do not fail.
        self._call = tf.function(loader.apply_transform_model, autograph=False)
        self.fragile: set[str] = set()
        """Raw features of which some values fail."""
        self._folder = pathlib.Path(output.transform_savedmodel_dir)
        self.raw_spec: Mapping[str, Any] = output.raw_feature_spec()
        proto = saved_model_pb2.SavedModel()
        proto.ParseFromString((self._folder / "saved_model.pb").read_bytes())
        self._graph = proto.meta_graphs[0].graph_def
        schema = folder / "metadata" / "schema.pbtxt"
        domains = schema_reader.read(str(schema)).string_domain if schema.is_file() else ()
        names = [tuple(each.value) for each in domains if each.name == schema_reader.LABEL_NAMES]
        self.class_names = names[0] if names else None

    def numbers_of_classes(self, label: str) -> Sequence[str]:
        """The classes of a label that is a number; empty: it is none."""
        name = classifier.vocabulary_of(label, is_text=False)
        if self._output.vocabulary_file_by_name(name) is None:
            return ()
        return classifier.ordered(x.decode() for x in self._output.vocabulary_by_name(name))

    @property
    def structure(self) -> tuple[Any, ...]:
        """Equal if both graphs are the same; may differ for two equal ones."""
        functions = sorted(map(_text, self._graph.library.function))
        assets = {file.name: file.read_bytes() for file in self._assets()}
        return _text(self._graph.node), functions, assets

    def _assets(self) -> Iterator[pathlib.Path]:
        return self._folder.glob("assets/*")

    def _constants(self) -> Iterator[np.ndarray]:
        functions = [function.node_def for function in self._graph.library.function]
        for nodes in [self._graph.node, *functions]:
            for node in nodes:
                if node.op == "Const" and node.attr["value"].tensor.ByteSize() < 64 * _MOST:
                    yield tf.make_ndarray(node.attr["value"].tensor).ravel()[:_MOST]

    @property
    def numbers(self) -> np.ndarray:
        """All numbers in the graph, float64."""
        found = [each for each in self._constants() if each.dtype.kind in "iuf"]
        return np.unique(np.concatenate([np.zeros(1), *(each.astype(float) for each in found)]))

    @property
    def texts(self) -> set[str]:
        """All texts in the graph and in its vocabularies."""
        found = [each for each in self._constants() if each.dtype.kind == "O"]
        raw = {bytes(text) for each in found for text in each if len(text) < 10_000}
        for file in self._assets():
            if file.suffix in (".gz", ".tfrecord") or file.name.endswith(".tfrecord.gz"):
                records = tf.data.TFRecordDataset(str(file), compression_type="GZIP")
                raw |= set(records.as_numpy_iterator())
            else:
                lines = file.read_bytes().split(b"\n")
                # Of a task on a table, a line is escaped; of another preprocessing_fn, it is not.
                raw |= {text for line in lines for text in (line, columns.of_line(line))}
        return {text.decode(errors="ignore") for text in raw}

    def features(self, probes: Mapping[str, _Probes]) -> dict[str, np.ndarray] | None:
        """The transformed features that depend on these raw features alone; None: they fail.

        The last row has no value, if all features are optional. Of a single feature, a row that
        fails becomes -1, such as that of a text that is no class.
        """
        specs = [self.raw_spec[name] for name in probes]
        optional = all(isinstance(spec, tf.io.VarLenFeature) for spec in specs)
        raw = {
            name: self._raw(self.raw_spec[name], each.values, optional)
            for name, each in probes.items()
        }
        try:
            return {name: _dense(value) for name, value in self._call(raw).items()}
        except Exception:  # whatever a preprocessing_fn raises
            self.fragile |= probes.keys()
        if len(probes) > 1 or optional:
            return None
        [(name, values)] = raw.items()
        rows: list[dict[str, np.ndarray] | None] = []
        for row in range(min(len(values), _MOST_ROWS)):
            try:
                made = self._call({name: values[row : row + 1]})
                rows.append({key: _dense(value) for key, value in made.items()})
            except Exception:  # see above
                rows.append(None)
        first = next(filter(None, rows), None)
        if first is None:
            return None
        blank = {key: np.full_like(value, -1) for key, value in first.items()}
        return {key: np.concatenate([(row or blank)[key] for row in rows]) for key in first}

    @staticmethod
    def _raw(spec: Any, values: np.ndarray, optional: bool) -> Any:
        tensor = tf.constant(values, spec.dtype)
        if isinstance(spec, tf.io.VarLenFeature):
            count = len(values)
            indices = np.stack([np.arange(count), np.zeros(count, int)], axis=1)
            return tf.sparse.SparseTensor(indices, tensor, [count + optional, 1])
        size = int(np.prod(spec.shape, dtype=int))
        return tf.reshape(tf.repeat(tensor, size), [-1, *spec.shape])


def _dense(value: Any) -> np.ndarray:
    if isinstance(value, tf.sparse.SparseTensor):
        value = tf.sparse.to_dense(value)
    if isinstance(value, tf.RaggedTensor):
        value = value.to_tensor()
    return np.asarray(value.numpy())


def _text(message: Any) -> str:
    """Without the numbers and paths that differ between two runs of the same code."""
    text = re.sub(r"(__inference_\w*?|_restore|_save|_load)_\d+", r"\1", str(message))
    return re.sub(r'key: "shared_name"\s+value \{[^}]*\}', "", text)
