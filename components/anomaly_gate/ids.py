"""Finds ids that occur twice: an example in two splits leaks from one into the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stagecraft.components.anomaly_gate.checks import Finding
from stagecraft.schemas import features


class Ids(NamedTuple):
    """The ids of a split, and the place of each; 16 bytes per example."""

    split: str
    files: Sequence[str]
    ids: npt.NDArray[np.int64]
    file: npt.NDArray[np.int32]
    """Index into ``files``."""
    record: npt.NDArray[np.int32]
    """Position in the file, from 0."""


def duplicates(splits: Sequence[Ids]) -> list[Finding]:
    """A finding for each pair of splits that share ids, and for each split that repeats some.

    A finding names the later split of a pair. An id that occurs three times counts twice.
    """
    ids = np.concatenate([split.ids for split in splits])
    of_split = np.repeat(np.arange(len(splits)), [split.ids.size for split in splits])
    order = np.argsort(ids, kind="stable")  # equal ids stay in the order of the splits
    is_new = np.concatenate([[True], np.diff(ids[order]) != 0])[: ids.size]
    begin = np.maximum.accumulate(np.where(is_new, np.arange(ids.size), 0))
    later, earlier = order[~is_new], order[begin[~is_new]]

    findings = []
    for a, b in sorted({*zip(of_split[earlier].tolist(), of_split[later].tolist(), strict=True)}):
        offenders = later[(of_split[earlier] == a) & (of_split[later] == b)]
        split = splits[b]
        place = offenders.min() - np.searchsorted(of_split, b)
        where = describe(
            split.files[split.file[place]], int(split.record[place]), int(split.ids[place])
        )
        share = f"{offenders.size:,} of {split.ids.size:,} examples"
        if a == b:
            expected, found = "unique ids", f"{share} repeat an id"
        else:
            expected = f"ids of no other split (examples of {splits[a].split} leaked here)"
            found = f"{share} have an id of {splits[a].split}"
        findings.append(
            Finding(split.split, features.ID, expected, f"{found}, the first is {where}")
        )
    return findings


def describe(file: str, record: int, example_id: int | None) -> str:
    """An example by its id, if it has one, and its place."""
    place = f"record {record} (from 0) of {file}"
    return place if example_id is None else f"id {example_id}, {place}"
