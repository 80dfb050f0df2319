"""Reads TFDV's statistics of a feature. NaN is a missing value."""

from __future__ import annotations

from typing import Any

from tensorflow_metadata.proto.v0 import statistics_pb2


def name_of(feature: statistics_pb2.FeatureNameStatistics) -> str:
    """The name; of a nested feature, its path with dots."""
    return ".".join(feature.path.step) or feature.name


def common(feature: statistics_pb2.FeatureNameStatistics) -> Any:
    """The part that statistics of numbers, texts and bytes have in common."""
    kind = feature.WhichOneof("stats")
    return getattr(feature, kind).common_stats if kind else statistics_pb2.CommonStatistics()


def nan_values(feature: statistics_pb2.FeatureNameStatistics) -> int:
    """How many values are NaN."""
    histograms = feature.num_stats.histograms if feature.HasField("num_stats") else ()
    return max((int(each.num_nan) for each in histograms), default=0)


def present(feature: statistics_pb2.FeatureNameStatistics) -> tuple[int, int]:
    """Examples with a value, and examples without.

    CsvExampleGen writes a missing value as an empty list, which TFDV does not count as missing.
    """
    found = common(feature)
    is_single = found.max_num_values <= 1
    count = found.tot_num_values - nan_values(feature) if is_single else found.num_non_missing
    return int(count), int(found.num_non_missing + found.num_missing - count)
