"""What lacks a feature is refused by name."""

from __future__ import annotations

import pytest

from stagecraft.schemas import features, missing_features
from stagecraft.schemas.missing_features import MissingFeatureError


def test_what_is_missing_what_is_there_and_what_to_do() -> None:
    with pytest.raises(MissingFeatureError) as raised:
        missing_features.check(
            "a.pbtxt", ["picture", "label"], features.ALL, "add each missing feature"
        )
    assert raised.value.missing == ("image", "id")
    assert raised.value.present == ("label", "picture")
    assert (raised.value.file, raised.value.suggestion) == ("a.pbtxt", "add each missing feature")


def test_nothing_is_there() -> None:
    with pytest.raises(MissingFeatureError) as caught:
        missing_features.check("a.pbtxt", [], ["id"], "add each missing feature")
    assert caught.value.record == "id"


def test_nothing_is_missing() -> None:
    missing_features.check(
        "a.pbtxt", ["more", *features.ALL], features.ALL, "add each missing feature"
    )
