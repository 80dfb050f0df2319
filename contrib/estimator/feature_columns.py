"""Columns of canned models: what of a table's columns enters the linear and the deep part.

Imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.data.tasks.tables.column import Categories, Column
from stagecraft.trainer_module.data.tasks.tables.columns import Bucketized, Crossed, column


@dataclasses.dataclass(frozen=True)
class Indicator:
    """A column of ids as ones and zeros, one number for each id. A missing value is all zeros."""

    column: Column


@dataclasses.dataclass(frozen=True)
class Embedding:
    """A column of ids as ``dimension`` numbers to learn. A missing value is all zeros."""

    column: Column
    dimension: int
    shared: str | None = None
    """Columns with the same ``shared`` have one weight, of this name. Estimator's default for the
    columns a and b is ``a_b_shared_embedding``."""

    def __post_init__(self) -> None:
        checks.whole("dimension", self.dimension, 1)


FeatureColumn = Column | Indicator | Embedding | str | Mapping[str, Any]
"""A column; or as in YAML, ``numeric`` or ``{kind: hashed, buckets: 9}``."""


@dataclasses.dataclass(frozen=True)
class Input:
    """An input of the model, in one of its parts."""

    name: str
    """Of the input."""
    estimator_name: str
    """Of Estimator's feature column."""
    ids: int | None
    """Number of ids, without the one for a missing value; None: a number."""
    dimension: int | None = None
    """Of the embedding; None: ones and zeros."""
    shared: str | None = None


def parsed(setting: str, given: Mapping[str, FeatureColumn]) -> dict[str, Any]:
    """Feature columns by name; what YAML gives becomes a column.

    Raises:
        SettingError: it is no mapping, or there is no such column.
    """
    use = '{"age": Numeric()}, a mapping from names to columns'
    checks.of_type(setting, given, Mapping, "is not a mapping", use)
    found: dict[str, Any] = {}
    for name, each in given.items():
        if not isinstance(each, (Indicator, Embedding)):
            found[name] = column(name, each)
            if found[name].lengths(name):
                problem = "has several values, which canned models do not take"
                raise SettingError(f"{setting}: {name}", each, problem, "stagecraft.tables")
        elif isinstance(each.column, Categories):
            found[name] = each
        else:
            problem = "is no column of ids"
            raise SettingError(f"{setting}: {name}", each.column, problem, "Hashed or Listed")
    return found


def plain(each: Column | Indicator | Embedding) -> Column:
    """The column of a table."""
    return each.column if isinstance(each, (Indicator, Embedding)) else each


def of_table(**parts: Mapping[str, Any]) -> dict[str, Column]:
    """The columns of all parts, for the task.

    Raises:
        SettingError: there are none, or two parts have different columns of one name.
    """
    found: dict[str, Column] = {}
    for setting, columns in parts.items():
        for name, each in columns.items():
            if found.setdefault(name, plain(each)) != plain(each):
                problem = f"differs from the column {name} of the other part"
                use = "another name, with source for the raw feature"
                raise SettingError(setting, plain(each), problem, use)
    if not found:
        setting = next(iter(parts))
        raise SettingError(setting, "{}", "has no columns", '{"age": Numeric()}')
    return found


def linear(columns: Mapping[str, Any]) -> tuple[Input, ...]:
    """The inputs of a linear model.

    Raises:
        SettingError: an embedding or an indicator, which a linear model does not need.
    """
    for name, each in columns.items():
        if not isinstance(each, Column):
            problem = "is not needed in a linear model, where each id has a weight"
            raise SettingError(f"linear_feature_columns: {name}", each, problem, repr(each.column))
    return tuple(Input(each, named, ids) for _, each, named, ids in _inputs(columns))


def deep(columns: Mapping[str, Any]) -> tuple[Input, ...]:
    """The inputs of dense layers, in the order in which Estimator joins them: by name.

    Raises:
        SettingError: a column of ids is neither an embedding nor an indicator; or embeddings that
            share a weight differ.
    """
    found, shared = [], dict[str, Any]()
    for column_name, name, named, ids in _inputs(columns):
        each = columns[column_name]
        if isinstance(each, Embedding):
            size = (ids, each.dimension)
            if each.shared and shared.setdefault(each.shared, size) != size:
                problem = f"has other ids or dimensions than {each.shared} has elsewhere"
                raise SettingError(
                    f"dnn_feature_columns: {column_name}", each, problem, "equal ones"
                )
            suffix = "_shared_embedding" if each.shared else "_embedding"
            found.append(Input(name, named + suffix, ids, each.dimension, each.shared))
        elif isinstance(each, Indicator):
            is_dense = isinstance(each.column, Bucketized)
            found.append(Input(name, named if is_dense else f"{named}_indicator", ids))
        elif ids is None or isinstance(each, Bucketized):
            found.append(Input(name, named, ids))
        else:
            problem = "is a column of ids, which dense layers do not take"
            use = f"Embedding({each!r}, dimension=8), or Indicator"
            raise SettingError(f"dnn_feature_columns: {column_name}", each, problem, use)
    return tuple(sorted(found, key=lambda each: each.estimator_name))


def _inputs(columns: Mapping[str, Any]) -> list[tuple[str, str, str, int | None]]:
    """Column, input, name of Estimator's column, and ids."""
    names = {name: estimator_name(name, plain(each)) for name, each in columns.items()}
    # Embedding and indicator of one feature have different names.
    uses = Counter((named, type(columns[name])) for name, named in names.items())
    result = []
    for name, each in columns.items():
        named = names[name] if uses[names[name], type(each)] == 1 else name
        for made, ids in plain(each).inputs(name).items():
            rest = made.removeprefix(name)
            result.append((name, made, named + rest, None if ids is None else ids - 1))
    return result


def estimator_name(name: str, each: Column) -> str:
    """The name that Estimator gives to such a column, as in its checkpoints."""
    if isinstance(each, Crossed):
        keys = [key if isinstance(key, str) else estimator_name("", key) for key in each.keys]
        return "_X_".join(sorted(keys))
    named = each.source or name
    return f"{named}_bucketized" if isinstance(each, Bucketized) else named
