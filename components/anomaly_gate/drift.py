"""Compares statistics with those of an earlier run, or of another split, by TFDV's comparators."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from stagecraft.components.anomaly_gate.checks import DRIFT, SKEW, Finding
from stagecraft.components.feature_statistics import common, name_of

_MEASURES = {
    "L_INFTY": "the largest difference of the share of a value",
    "JENSEN_SHANNON_DIVERGENCE": "Jensen-Shannon divergence",
}


class Limits(NamedTuple):
    """The largest distances that pass, between 0 and 1; None: a comparison is off."""

    drift: float | None = None
    """Of each feature of the task from the last good run."""
    skew: float | None = None
    """Of each feature of the task between the train split and another one."""
    features: Mapping[str, float] = {}
    """In place of both, by feature; they also turn the comparison with the last good run on."""

    @property
    def comparators(self) -> tuple[str, ...]:
        """The kinds of comparators of a schema that have an effect: a comparison is on."""
        runs = self.drift is not None or bool(self.features)
        on = {DRIFT: runs, SKEW: self.skew is not None}
        return tuple(kind for kind, is_on in on.items() if is_on)


def findings(
    statistics: Mapping[str, statistics_pb2.DatasetFeatureStatistics],
    earlier: statistics_pb2.DatasetFeatureStatistics | None,
    schema: schema_pb2.Schema,
    limits: Limits,
    used: Collection[str],
    train: str,
) -> Iterator[Finding]:
    """The features that are too far away.

    Args:
        statistics: by split.
        earlier: of the train split of the last good run; None: there is none.
        schema: of the data; its own comparators count, too.
        used: features of the task.
        train: name of the train split.
    """
    whole = statistics[train]
    if earlier is not None and DRIFT in limits.comparators:
        names = [name for name in used if limits.drift is not None]
        compared = _with_comparators(schema, whole, limits, limits.drift, names, DRIFT)
        distances = _distances(whole, compared, previous_statistics=_list(earlier))
        yield from _exceeded(train, distances, "the train split of the last good run")
    for split, other in statistics.items():
        if SKEW not in limits.comparators or split == train or not other.num_examples:
            continue
        compared = _with_comparators(schema, whole, limits, limits.skew, used, SKEW)
        distances = _distances(whole, compared, serving_statistics=_list(other))
        yield from _exceeded(split, distances, f"the split {train}")


def columns(
    now: statistics_pb2.DatasetFeatureStatistics, before: statistics_pb2.DatasetFeatureStatistics
) -> str:
    """A sentence about columns that are new, or no longer there; empty: they are the same."""
    present = [
        {name_of(each) for each in of_run.features if common(each).num_non_missing}
        for of_run in (now, before)
    ]
    parts = [
        f"{word} since the last good run: {', '.join(sorted(names))}"
        for word, names in (
            ("new columns", present[0] - present[1]),
            ("columns without values", present[1] - present[0]),
        )
        if names
    ]
    return "; ".join(parts)


def _with_comparators(
    schema: schema_pb2.Schema,
    statistics: statistics_pb2.DatasetFeatureStatistics,
    limits: Limits,
    limit: float | None,
    used: Collection[str],
    field: str,
) -> schema_pb2.Schema:
    """A copy with the comparator that fits the type of each compared feature."""
    result = schema_pb2.Schema()
    result.CopyFrom(schema)
    kinds = {name_of(feature): feature for feature in statistics.features}
    for feature in result.feature:
        bound = limits.features.get(feature.name, limit if feature.name in used else None)
        found = kinds.get(feature.name)
        if bound is None or found is None or feature.HasField(field):
            continue
        comparator = getattr(feature, field)
        if found.HasField("num_stats"):
            comparator.jensen_shannon_divergence.threshold = bound
        elif found.HasField("string_stats"):
            comparator.infinity_norm.threshold = bound
            if feature.type == schema_pb2.INT:
                feature.int_domain.is_categorical = True
    return result


def _list(
    statistics: statistics_pb2.DatasetFeatureStatistics,
) -> statistics_pb2.DatasetFeatureStatisticsList:
    return statistics_pb2.DatasetFeatureStatisticsList(datasets=[statistics])


def _distances(
    statistics: statistics_pb2.DatasetFeatureStatistics, schema: schema_pb2.Schema, **others: Any
) -> Iterator[Any]:
    """Feature and measurement of each comparison."""
    anomalies = tfdv.validate_statistics(_list(statistics), schema, **others)
    for info in anomalies.drift_skew_info:
        for measurement in (*info.drift_measurements, *info.skew_measurements):
            yield ".".join(info.path.step), measurement


def _exceeded(split: str, distances: Iterator[Any], other: str) -> Iterator[Finding]:
    for feature, measurement in distances:
        if measurement.value > measurement.threshold:
            kind = type(measurement).Type.Name(measurement.type)
            yield Finding(
                split,
                feature,
                f"a distance of at most {measurement.threshold:g} from {other}",
                f"it is {measurement.value:.3f} ({_MEASURES.get(kind, kind)})",
            )
