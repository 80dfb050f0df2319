"""Summarizes the data of a run: splits, statistics, anomalies, and images as the model saw them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2
from tfx.dsl.io import fileio
from tfx.types import Artifact, artifact_utils
from tfx.utils import io_utils

from stagecraft.common.errors import UserError
from stagecraft.common.text import visible
from stagecraft.components import feature_statistics
from stagecraft.components.anomaly_gate import FILE_NAME as ANOMALIES, UNSEEN
from stagecraft.components.example_gen import spans
from stagecraft.components.metadata import run_metadata
from stagecraft.components.report import images
from stagecraft.components.report.images import DEFAULT, Pixels, Scan
from stagecraft.components.report.report_data import (
    AUGMENTATION,
    Augmented,
    DataSummary,
    FeatureStatistics,
    Split,
    Training,
)
from stagecraft.schemas import features
from stagecraft.trainer_module.data import example_files
from stagecraft.trainer_module.data.schema_reader import Picture
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

STATISTICS = "FeatureStats.pb"
"""StatisticsGen's file of a split. TFX's function that reads it imports Kubernetes and Beam."""

_OVERALL = "All Examples"
"""TFDV's name of the statistics that are not those of a slice."""

_SHOWN = 6  # images that are shown with their augmentations, each of another class
Artifacts = Mapping[str, Artifact]


def read(
    artifacts: Artifacts,
    names: Sequence[str],
    training: Training | None,
    ids: Sequence[int],
    sections: Sequence[str],
    picture: Picture = DEFAULT,
) -> tuple[DataSummary | None, dict[int, Pixels], dict[int, str]]:
    """Summarizes the data as far as artifacts exist.

    Also reads some images of eval, and the names of their files if there are any, by id.

    Args:
        names: of the classes; empty for a task without classes.
        sections: of the report.
    """
    examples = artifacts.get("examples")
    if examples is None:
        return None, {}, {}
    has_images = AUGMENTATION in sections
    scans = _scans(examples, len(names), ids, picture) if has_images else {}
    data = DataSummary(
        source=examples.get_string_custom_property("source"),
        fingerprint=examples.get_string_custom_property("fingerprint"),
        splits=[
            Split(name=split, examples=sum(scan.counts), per_class=scan.counts)
            for split, scan in scans.items()
        ]
        or _counted(examples),
        features=_features(artifacts["statistics"]) if "statistics" in artifacts else [],
        anomalies=_anomalies(artifacts["anomalies"]) if "anomalies" in artifacts else None,
        augmented=_augmented(artifacts, scans, names, training, picture),
        span=spans.words(spans.told(run_metadata.of_artifact(examples.mlmd_artifact))),
        unseen=artifacts["anomalies"].get_string_custom_property(UNSEEN)
        if "anomalies" in artifacts
        else "",
    )
    if features.EVAL not in scans:
        return data, {}, {}
    return data, scans[features.EVAL].wanted, scans[features.EVAL].names


def _counted(examples: Artifact) -> list[Split]:
    """The splits of examples without images."""
    splits = []
    for split in artifact_utils.decode_split_names(examples.split_names):
        pattern = os.path.join(artifact_utils.get_split_uri([examples], split), "*")
        with contextlib.suppress(UserError):  # the files were removed since
            count = example_files.count(example_files.expand([pattern]))
            splits.append(Split(name=split, examples=count, per_class=[]))
    return splits


def _scans(
    examples: Artifact, classes: int, ids: Sequence[int], picture: Picture
) -> dict[str, Scan]:
    scans = {}
    for split in artifact_utils.decode_split_names(examples.split_names):
        folder = artifact_utils.get_split_uri([examples], split)
        try:
            wanted = ids if split == features.EVAL else ()
            scans[split] = images.scan([os.path.join(folder, "*")], classes, wanted, picture)
        except UserError:  # the files were removed since
            continue
    return scans


def _augmented(
    artifacts: Artifacts,
    scans: Mapping[str, Scan],
    names: Sequence[str],
    training: Training | None,
    picture: Picture,
) -> list[Augmented]:
    if training is None or "transform_graph" not in artifacts or features.TRAIN not in scans:
        return []
    settings: TrainSettings = TrainingSettings.from_flat(training.record["settings"]).train
    first = scans[features.TRAIN].first
    labels = list(first)[:: max(1, len(first) // _SHOWN)][:_SHOWN]
    return images.augmented(
        [first[label] for label in labels],
        [names[label] for label in labels],
        artifacts["transform_graph"].uri,
        seed=settings.seed,
        augmentations=settings.augment,
        picture=picture,
    )


def _features(statistics: Artifact) -> list[FeatureStatistics]:
    found = []
    for split in artifact_utils.decode_split_names(statistics.split_names):
        for feature in _overall(artifact_utils.get_split_uri([statistics], split)).features:
            count, missing = feature_statistics.present(feature)
            found.append(
                FeatureStatistics(
                    split=split,
                    feature=visible(feature_statistics.name_of(feature)),
                    kind=statistics_pb2.FeatureNameStatistics.Type.Name(feature.type).lower(),
                    count=count,
                    missing=missing,
                    summary=_summary(feature),
                    numbers=_numbers(feature.num_stats) if feature.HasField("num_stats") else {},
                    most_frequent={
                        visible(value.value): value.frequency
                        for value in feature.string_stats.top_values
                    },
                )
            )
    return sorted(found, key=lambda row: row.feature)


def _overall(folder: str) -> statistics_pb2.DatasetFeatureStatistics:
    """The statistics of all examples of a split."""
    read = io_utils.read_bytes_file(os.path.join(folder, STATISTICS))
    slices = statistics_pb2.DatasetFeatureStatisticsList.FromString(read).datasets
    return slices[0] if len(slices) == 1 else {each.name: each for each in slices}[_OVERALL]


def _summary(feature: Any) -> str:
    if feature.HasField("num_stats"):
        stats = feature.num_stats
        if feature.type == statistics_pb2.FeatureNameStatistics.FLOAT:
            return f"{stats.min:,.4g} to {stats.max:,.4g}, mean {stats.mean:,.4g}"
        return f"{stats.min:,.0f} to {stats.max:,.0f}, mean {stats.mean:,.1f}"
    if feature.HasField("bytes_stats"):
        stats = feature.bytes_stats
        least, most = stats.min_num_bytes, stats.max_num_bytes
        lengths = f"{least:,.0f} to {most:,.0f} bytes"
        return f"{most:,.0f} bytes each" if least == most else lengths
    return f"{feature.string_stats.unique:,} different values"


def _numbers(stats: Any) -> dict[str, float]:
    return {
        "mean": stats.mean,
        "std": stats.std_dev,
        "min": stats.min,
        "median": stats.median,
        "max": stats.max,
        "zeros": stats.num_zeros,
    }


def _anomalies(artifact: Artifact) -> dict[str, list[str]]:
    found = {}
    for split in artifact_utils.decode_split_names(artifact.split_names):
        path = os.path.join(artifact_utils.get_split_uri([artifact], split), ANOMALIES)
        if fileio.exists(path):
            proto = anomalies_pb2.Anomalies.FromString(io_utils.read_bytes_file(path))
            found[split] = [
                f"{name}: {info.description}" for name, info in sorted(proto.anomaly_info.items())
            ]
    return found
