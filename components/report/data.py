"""The data's side of a run: splits, statistics, anomalies, and pictures as the model saw them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.dsl.io import fileio
from tfx.types import Artifact, artifact_utils
from tfx.utils import io_utils

from stagecraft.components.anomaly_gate.executor import FILE_NAME as ANOMALIES
from stagecraft.components.report import pictures
from stagecraft.components.report.facts import Augmented, Data, FeatureFacts, Split, Training
from stagecraft.components.report.pictures import Pixels, Scan
from stagecraft.schemas import features
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings

_SHOWN = 6
"""Pictures whose augmentations are shown, of as many classes."""

Given = Mapping[str, Artifact]


def read(
    given: Given, names: Sequence[str], training: Training | None, ids: Sequence[int]
) -> tuple[Data | None, dict[int, Pixels]]:
    """What was read, and the pictures that are asked for.

    Args:
        given: artifacts by role; those that are missing leave their part empty.
        names: of the classes.
        training: what became of the data.
        ids: of examples of the eval split.

    Returns:
        The facts, None without examples; pictures by id.
    """
    examples = given.get("examples")
    if examples is None:
        return None, {}
    scans = _scans(examples, len(names), ids)
    data = Data(
        source=examples.get_string_custom_property("source"),
        fingerprint=examples.get_string_custom_property("fingerprint"),
        splits=[
            Split(name=split, examples=sum(scan.counts), per_class=scan.counts)
            for split, scan in scans.items()
        ],
        features=_features(given["statistics"]) if "statistics" in given else [],
        anomalies=_anomalies(given["anomalies"]) if "anomalies" in given else None,
        augmented=_augmented(given, scans, names, training),
    )
    wanted = scans[features.EVAL].wanted if features.EVAL in scans else {}
    return data, wanted


def _scans(examples: Artifact, classes: int, ids: Sequence[int]) -> dict[str, Scan]:
    found = {}
    for split in artifact_utils.decode_split_names(examples.split_names):
        folder = artifact_utils.get_split_uri([examples], split)
        try:
            wanted = ids if split == features.EVAL else ()
            found[split] = pictures.scan([os.path.join(folder, "*")], classes, wanted)
        except UserError:  # removed since: what is left is told
            continue
    return found


def _augmented(
    given: Given, scans: Mapping[str, Scan], names: Sequence[str], training: Training | None
) -> list[Augmented]:
    if training is None or "transform_graph" not in given or features.TRAIN not in scans:
        return []
    settings: TrainSettings = TrainingSettings.from_flat(training.record["settings"]).train
    first = scans[features.TRAIN].first
    labels = list(first)[:: max(1, len(first) // _SHOWN)][:_SHOWN]
    return pictures.augmented(
        [first[label] for label in labels],
        [names[label] for label in labels],
        given["transform_graph"].uri,
        seed=settings.seed,
        augmentations=settings.augmentations,
    )


def _features(statistics: Artifact) -> list[FeatureFacts]:
    found = []
    for split in artifact_utils.decode_split_names(statistics.split_names):
        view = stats_artifact_utils.load_statistics(statistics, split)
        for feature in view.get_default_slice_or_die().proto().features:
            common, summary = _common(feature)
            found.append(
                FeatureFacts(
                    split=split,
                    feature=feature.name or ".".join(feature.path.step),
                    kind=statistics_pb2.FeatureNameStatistics.Type.Name(feature.type).lower(),
                    count=int(common.num_non_missing),
                    missing=int(common.num_missing),
                    summary=summary,
                )
            )
    return sorted(found, key=lambda row: row.feature)


def _common(feature: Any) -> tuple[Any, str]:
    if feature.HasField("num_stats"):
        stats = feature.num_stats
        return stats.common_stats, f"{stats.min:,.0f} to {stats.max:,.0f}, mean {stats.mean:,.1f}"
    if feature.HasField("bytes_stats"):
        stats = feature.bytes_stats
        return stats.common_stats, _lengths(stats.min_num_bytes, stats.max_num_bytes)
    stats = feature.string_stats
    return stats.common_stats, f"{stats.unique:,} different values"


def _lengths(least: float, most: float) -> str:
    if least == most:
        return f"{most:,.0f} bytes each"
    return f"{least:,.0f} to {most:,.0f} bytes"


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
