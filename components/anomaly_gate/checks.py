"""Derives rules from the schema, and turns TFDV's anomalies into findings.

Statistics of raw bytes contain only the average length, and TFDV's messages contain no counts. So
``scan.py`` checks each value of the features that training needs, by the rules made here. TFDV
checks everything else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from stagecraft.common.errors import UserError
from stagecraft.common.text import visible
from stagecraft.components.feature_statistics import common, name_of, nan_values, present
from stagecraft.schemas import features
from stagecraft.trainer_module.data import schema_reader
from stagecraft.trainer_module.data.tasks import mismatches
from stagecraft.trainer_module.data.tasks.mismatches import Observed

SIZE_CODE = 2**31
"""The size of a picture as one int64: ``height * SIZE_CODE + width``; 0: not decodable."""

_MOST_SHOWN = 10

_Type = statistics_pb2.FeatureNameStatistics


class Rule(NamedTuple):
    """Each example must have exactly one value of a feature, within bounds."""

    feature: str
    is_bytes: bool  # bytes, else int64
    low: int | None  # minimum of the value, the length in bytes, or the code; None: unbounded
    high: int | None
    expected: str
    picture: schema_reader.Picture | None = None
    """Encoded, whose values are the codes of their sizes; None: others."""

    def shown(self, value: int) -> str:
        """A value in a message."""
        if self.picture:
            height, width = divmod(value, SIZE_CODE)
            return f"{height} x {width}" if value else "not decodable"
        return f"{value} bytes" if self.is_bytes else f"{value}"


class Finding(NamedTuple):
    """An anomaly."""

    split: str
    feature: str  # empty: the finding is about the whole split
    expected: str  # empty: what was found says it
    found: str  # with the number of examples, and the place of the first one
    file: str = ""  # of the first one, if it is a picture with a name

    def __str__(self) -> str:
        feature = f", feature {self.feature}" if self.feature else ""
        expected = f"expected {self.expected}; " if self.expected else ""
        return f"Split {self.split}{feature}: {expected}{self.found}."


def rules(schema: schema_pb2.Schema) -> list[Rule]:
    """Rules for the features image, mask, label and id, as far as the schema has them."""
    known = {feature.name: feature for feature in schema.feature}
    made = []
    if features.IMAGE in known:
        picture = schema_reader.picture_of(schema)
        made.append(_picture_rule(features.IMAGE, picture))
        if features.MASK in known:
            mask = picture._replace(shape=(*picture.shape[:2], 1))
            made.append(_picture_rule(features.MASK, mask))
    for name in (features.LABEL, features.ID):
        if name in known:
            domain = known[name].int_domain
            low = domain.min if domain.HasField("min") else None
            high = domain.max if domain.HasField("max") else None
            expected = (
                f"values from {'any' if low is None else f'{low:,}'} "
                f"to {'any' if high is None else f'{high:,}'}"
            )
            made.append(Rule(name, False, low, high, expected))
    return made


def _picture_rule(name: str, picture: schema_reader.Picture) -> Rule:
    height, width, channels = picture.shape
    if picture.encoded:
        kind = "a grey PNG of 8 bits" if name == features.MASK else "a JPEG, PNG, BMP or GIF"
        if picture.fit:
            return Rule(name, True, 1, None, kind, picture)
        code = height * SIZE_CODE + width
        return Rule(name, True, code, code, f"{kind} of {height} x {width}", picture)
    expected = f"{picture.size:,} bytes ({height} x {width} x {channels})"
    return Rule(name, True, picture.size, picture.size, expected)


DRIFT, SKEW = "drift_comparator", "skew_comparator"
"""Fields of a schema's feature."""

_TURNED_ON_BY = {DRIFT: "drift.max_distance", SKEW: "drift.max_skew"}


def refuse_comparators(schema: schema_pb2.Schema, file: str, used: Collection[str] = ()) -> None:
    """Refuses comparators for drift and skew that have no effect.

    Args:
        used: fields whose comparators have one.

    Raises:
        UserError: the schema has another one.
    """
    found = [
        (feature.name, field)
        for feature in _with_nested(schema.feature)
        for field in (DRIFT, SKEW)
        if field not in used and feature.HasField(field)
    ]
    constraints = schema.dataset_constraints
    for field in ("num_examples_drift_comparator", "num_examples_version_comparator"):
        if constraints.HasField(field):
            found.append(("dataset_constraints", field))
    for name, field in found:
        setting = _TURNED_ON_BY.get(field, "")
        use = f"{f'Set {setting}, or remove' if setting else 'Remove'} {field}."
        raise UserError(
            f"{file}: {name!r} has a {field}, which would have no effect"
            f"{f' without {setting}' if setting else ''}. {use}",
            file=file,
            record=name,
            value=field,
            setting=setting,
            suggestion=use,
        )


def check_representations(schema: schema_pb2.Schema, file: str, features: Iterable[str]) -> None:
    """Refuses a group of tensor representations that lacks a feature: Transform would not have it.

    Args:
        file: the schema.
        features: that Transform reads.

    Raises:
        UserError: as said.
    """
    for group in schema.tensor_representation_group.values():
        for name in features:
            if name not in group.tensor_representation:
                use = f'tensor_representation {{ key: "{name}" value {{ … }} }}'
                raise UserError(
                    f"{file}: the tensor_representation_group has no feature {name!r}, so that "
                    f"Transform could not read it; add {use}, or remove the group",
                    file=file,
                    record=name,
                    suggestion=use,
                )


def _with_nested(given: Iterable[schema_pb2.Feature]) -> Iterator[schema_pb2.Feature]:
    for feature in given:
        yield feature
        yield from _with_nested(feature.struct_domain.feature)


def readable(
    statistics: Mapping[str, statistics_pb2.DatasetFeatureStatistics], wanted: Sequence[Rule]
) -> tuple[list[Rule], list[Finding]]:
    """The rules whose features have the right type in every split, and findings for the others."""
    findings = []
    for split, of_split in statistics.items():
        of_feature = {name_of(feature): feature for feature in of_split.features}
        for rule in wanted:
            feature = of_feature.get(rule.feature)
            right = (_Type.STRING, _Type.BYTES) if rule.is_bytes else (_Type.INT,)
            count = common(feature).num_non_missing if feature else 0
            if feature is not None and count and feature.type not in right:
                expected = "bytes" if rule.is_bytes else "integers (int64)"
                type_name = _Type.Type.Name(feature.type)
                found = f"{count:,} of {of_split.num_examples:,} examples have {type_name} values"
                findings.append(Finding(split, rule.feature, expected, found))
    wrong = {finding.feature for finding in findings}
    return [rule for rule in wanted if rule.feature not in wrong], findings


def have_names(statistics: Mapping[str, statistics_pb2.DatasetFeatureStatistics]) -> bool:
    """Whether the examples have names of files, as bytes."""
    types = {
        feature.type
        for of_split in statistics.values()
        for feature in of_split.features
        if name_of(feature) == features.FILE_NAME and common(feature).num_non_missing
    }
    return bool(types) and types <= {_Type.STRING, _Type.BYTES}


def statistics_findings(
    split: str,
    statistics: statistics_pb2.DatasetFeatureStatistics,
    anomalies: anomalies_pb2.Anomalies,
    known: Collection[Finding],
) -> Iterator[Finding]:
    """TFDV's anomalies of a split, except for features with a more exact finding."""
    total = statistics.num_examples
    if anomalies.data_missing:
        yield Finding(split, "", "at least one example", "found none")
    if anomalies.HasField("dataset_anomaly_info"):
        description = _sentence(anomalies.dataset_anomaly_info)
        yield Finding(split, "", "", f"{description} ({total:,} examples)")
    present = {name_of(f): common(f).num_non_missing for f in statistics.features}
    for key, info in sorted(anomalies.anomaly_info.items()):
        name = ".".join(info.path.step) or key
        if any((finding.split, finding.feature) == (split, name) for finding in known):
            continue
        having = f"{present.get(name, 0):,} of {total:,} examples have this feature"
        yield Finding(split, name, "", f"{_sentence(info)} ({having})")


def number_findings(
    split: str,
    statistics: statistics_pb2.DatasetFeatureStatistics,
    schema: schema_pb2.Schema,
    numbers: Collection[str],
) -> Iterator[Finding]:
    """Numbers of a split that TFDV takes for valid, but training does not.

    NaN is a missing value, in each column. An infinite value has no place in a column of numbers.
    A column of large float32 values that differ by a few roundings, such as seconds since 1970, has
    lost what it had.

    Args:
        numbers: features that the model gets as numbers.
    """
    known = {feature.name: feature for feature in schema.feature}
    for feature in statistics.features:
        name, numeric = name_of(feature), feature.num_stats
        missing, wanted = nan_values(feature), known.get(name)
        if missing and wanted is not None:
            have = common(feature).num_non_missing - missing
            is_required = wanted.HasField("shape")
            if is_required or have < wanted.presence.min_fraction * statistics.num_examples:
                found = f"{missing:,} of {statistics.num_examples:,} examples have NaN"
                expected = "a number in each example" if is_required else "more values"
                yield Finding(split, name, f"{expected} (NaN is a missing value)", found)
        values = common(feature).tot_num_values - missing
        if name not in numbers or feature.type != _Type.FLOAT or not values:
            continue
        low, high = numeric.min, numeric.max
        if not np.isfinite([low, high]).all():
            yield Finding(split, name, "finite numbers", f"found values from {low:g} to {high:g}")
            continue
        largest = max(abs(low), abs(high))
        step = float(np.spacing(np.float32(largest)))
        if largest >= _WHOLE and 0 < high - low < _STEPS * step:
            expected = f"numbers that float32 can tell apart (near {largest:.10g}, by {step:g})"
            found = f"all values lie between {low:.10g} and {high:.10g}"
            use = "subtract a constant, or write whole numbers as int64"
            yield Finding(split, name, expected, f"{found}; {use}")


_WHOLE = 2.0**24
"""From here on, float32 does not hold each whole number."""

_STEPS = 256
"""A range of fewer steps has rounding errors of more than 0.4 % of its deviation."""


def observed(
    schema: schema_pb2.Schema, statistics: Mapping[str, statistics_pb2.DatasetFeatureStatistics]
) -> dict[str, Observed]:
    """The raw features, by the schema and by the statistics of each split."""
    found = mismatches.of_schema(schema)
    for split, of_split in statistics.items():
        for feature in of_split.features:
            name = name_of(feature)
            if name not in found:
                continue
            texts, counted = feature.string_stats, {}
            ranked = {each.label: int(each.sample_count) for each in texts.rank_histogram.buckets}
            if feature.HasField("string_stats") and texts.unique == len(ranked):
                counted = {split: {label: n for label, n in ranked.items() if label}}
            before = found[name]
            gaps = (present(feature)[1] + ranked.get("", 0), int(of_split.num_examples))
            is_text = feature.type == _Type.STRING and ranked
            found[name] = before._replace(
                kind="BYTES" if is_text else before.kind,
                missing={**before.missing, split: gaps},
                values={**before.values, **counted},
                unique={**before.unique, split: int(texts.unique)},
                texts=(*before.texts, *(label for label in ranked if label)),
                most=max(before.most, int(common(feature).max_num_values)),
            )
        for name in found.keys() - set(map(name_of, of_split.features)):
            none = int(of_split.num_examples), int(of_split.num_examples)
            found[name] = found[name]._replace(missing={**found[name].missing, split: none})
    return found


def unseen(observed: Mapping[str, Observed], names: Iterable[str], train: str) -> str:
    """Values of other splits that the train split lacks, and how many examples have them."""
    found = []
    for name in names:
        by_split = observed[name].values if name in observed else {}
        known = by_split.get(train)
        for split, counts in by_split.items():
            if known is None:
                break
            new = {label: count for label, count in counts.items() if label not in known}
            if new:
                shown = ", ".join(f"{visible(each)} ({n:,})" for each, n in [*new.items()][:5])
                more = f" and {len(new) - 5} more" if len(new) > 5 else ""
                found.append(f"{split}: {name} {shown}{more}")
    return "; ".join(found)


def report(findings: Sequence[Finding], inferred: bool = False) -> str:
    """The message of the error that stops the pipeline; one paragraph.

    Args:
        inferred: whether the schema is, so that there is no file to edit.
    """
    shown = findings[:_MOST_SHOWN]
    numbered = " ".join(f"({i}) {finding}" for i, finding in enumerate(shown, start=1))
    more = len(findings) - len(shown)
    anomalies = "1 anomaly" if len(findings) == 1 else f"{len(findings)} anomalies"
    return (
        f"The data does not conform to its schema, {anomalies}: {numbered}"
        + (f" And {more} more." if more else "")
        + " Correct the data. If the data is correct, "
        + (
            "write the schema to a file with 'stagecraft schema', edit it, and set "
            "data.schema_file."
            if inferred
            else "edit the schema (ImportSchema's file)."
        )
    )


def _sentence(info: anomalies_pb2.AnomalyInfo) -> str:
    return (info.description or info.short_description).rstrip(". ")
