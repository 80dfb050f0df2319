"""The whole pipeline under each strategy and runner, and with Transform materialised."""

from __future__ import annotations

import pathlib

import pytest
from support import TINY, run

pytestmark = pytest.mark.slow

TWO = ("parallel.replicas=2", "parallel.virtual_devices=2")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("parallel.strategy=mirrored", *TWO), ()),
        (("parallel.strategy=central_storage", *TWO), ("--runner", "beam")),
        (("transform.materialize=true", "train.ema_decay=0.9", "train.augment=cutout"), ()),
    ],
    ids=["mirrored", "central_storage-beam", "materialized-ema"],
)
def test_ends_pushed(
    tmp_path: pathlib.Path, settings: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = run(tmp_path / "out", *words, settings=(*TINY, *settings))
    assert done.code == 0, done.stderr
    assert set(done.states.values()) == {"done"}
    assert done.result["blessed"] and done.result["pushed"]
    assert done.result["examples"] == {"train": 360, "val": 40, "eval": 100}
