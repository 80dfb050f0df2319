"""Statistics of two days, or of two splits, and how far apart they are."""

import numpy as np
import pandas as pd
import pytest
import tensorflow_data_validation as tfdv

from stagecraft.components.anomaly_gate import drift

TOWNS = ["a", "b", "c"]
USED = ("size", "town")


def _statistics(shares, scale=1.0, **more):
    draw = np.random.default_rng(0)
    size, town = draw.normal(5, 1, 2000) * scale, draw.choice(TOWNS, 2000, p=shares)
    frame = pd.DataFrame({"size": size, "town": town, "other": np.arange(2000)} | more)
    return tfdv.generate_statistics_from_dataframe(frame).datasets[0]


@pytest.fixture(scope="module")
def days():
    """Three days: as ever, a little different, and a broken one."""
    return {
        "ever": _statistics([0.5, 0.3, 0.2]),
        "slow": _statistics([0.48, 0.32, 0.2], scale=1.05),
        "broken": _statistics([0.1, 0.3, 0.6], scale=1000.0, new=1),
    }


def _found(days, day, limits, earlier="ever", **splits):
    schema = tfdv.infer_schema(drift._list(days["ever"]))
    splits = {"train": day, **splits}
    whole = {split: days[name] for split, name in splits.items()}
    before = days[earlier] if earlier else None
    return [
        (each.split, each.feature)
        for each in drift.findings(whole, before, schema, limits, USED, "train")
    ]


@pytest.mark.parametrize(
    ("day", "limits", "expected"),
    [
        ("ever", drift.Limits(0.01), []),
        ("slow", drift.Limits(0.3), []),
        ("slow", drift.Limits(0.01), ["size", "town"]),
        ("broken", drift.Limits(0.3), ["size", "town"]),
        ("broken", drift.Limits(0.3, features={"town": 0.9}), ["size"]),
        ("broken", drift.Limits(features={"town": 0.1}), ["town"]),
        ("broken", drift.Limits(), []),
    ],
)
def test_a_day_and_the_last_one(day, limits, expected, days):
    assert _found(days, day, limits) == [("train", feature) for feature in expected]


def test_the_first_day_has_no_last_one(days):
    assert _found(days, "broken", drift.Limits(0.01), earlier=None) == []


def test_a_split_and_the_train_split(days):
    limits = drift.Limits(skew=0.3)
    assert _found(days, "ever", limits, val="slow", eval="broken") == [
        ("eval", "size"),
        ("eval", "town"),
    ]


def test_a_comparator_of_the_schema_has_its_own_limit(days):
    schema = tfdv.infer_schema(drift._list(days["ever"]))
    tfdv.get_feature(schema, "other").drift_comparator.jensen_shannon_divergence.threshold = 1e-9
    splits = {"train": days["slow"]}
    before = _statistics([0.5, 0.3, 0.2], other=np.arange(2000) * 2)
    found = drift.findings(splits, before, schema, drift.Limits(0.9), USED, "train")
    assert [each.feature for each in found] == ["other"]


def test_columns_that_come_and_go(days):
    assert drift.columns(days["slow"], days["ever"]) == ""
    came, went = (
        drift.columns(*(days[each] for each in pair))
        for pair in (("broken", "ever"), ("ever", "broken"))
    )
    assert came.endswith(": new") and went.endswith(": new") and came != went
