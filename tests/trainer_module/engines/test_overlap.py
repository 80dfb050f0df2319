"""The stages of the grid work at the same time; by who meets whom, not by the clock."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

GRIDS = ((2, 4), (4, 2), (3, 3))
"""Stages and microbatches."""


@pytest.fixture(scope="module")
def met() -> dict[tuple[int, int], dict[str, Any]]:
    """Grid -> what meet.py wrote."""
    script = pathlib.Path(__file__).with_name("meet.py")
    names = [f"{stages}x{microbatches}" for stages, microbatches in GRIDS]
    run = subprocess.run([sys.executable, script, *names], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    lines = run.stdout.splitlines()[-len(GRIDS) :]
    return dict(zip(GRIDS, map(json.loads, lines), strict=True))


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_microbatches_are_in_different_stages_at_the_same_time(
    met: dict[tuple[int, int], dict[str, Any]], grid: tuple[int, int]
) -> None:
    most = min(grid)
    assert met[grid]["together"] == {"forward": most, "backward": most}


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_in_a_stage_one_microbatch_follows_the_other(
    met: dict[tuple[int, int], dict[str, Any]], grid: tuple[int, int]
) -> None:
    stages, microbatches = grid
    there, back = list(range(microbatches)), list(reversed(range(microbatches)))
    assert met[grid]["order"] == {"forward": [there] * stages, "backward": [back] * stages}
    assert not met[grid]["crowded"], "two were in one stage at once"
