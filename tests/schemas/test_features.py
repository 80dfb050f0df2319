"""A schema that lacks a feature is refused by its name."""

from __future__ import annotations

import pytest

from stagecraft.schemas import features


@pytest.mark.parametrize(
    ("known", "missing"), [(["picture", "label"], ("image", "id")), ([], features.ALL)]
)
def test_refuses_missing_features(known: list[str], missing: tuple[str, ...]) -> None:
    with pytest.raises(features.MissingFeatureError) as raised:
        features.require("a.pbtxt", known, features.ALL, "add each missing feature")
    error = raised.value
    assert (error.missing, error.present) == (missing, tuple(sorted(known)))
    assert error.record == ", ".join(missing)
    assert (error.file, error.suggestion) == ("a.pbtxt", "add each missing feature")


def test_takes_more_features() -> None:
    features.require("a.pbtxt", ["more", *features.ALL], features.ALL, "add each missing feature")
