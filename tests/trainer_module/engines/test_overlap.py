import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from stagecraft.trainer_module.pipeline_parallel import schedule

GRIDS = [(name, *sizes) for name in schedule.SCHEDULES for sizes in ((2, 1, 4), (3, 1, 2))]
GRIDS += [("1f1b", 2, 2, 4), ("1f1b", 3, 2, 3)]
"""Schedule, stages, virtual stages on each device, and microbatches."""


@pytest.fixture(scope="module")
def met() -> dict[tuple[str, int, int, int], dict[str, Any]]:
    """Grid -> what meet.py wrote."""
    script = pathlib.Path(__file__).with_name("meet.py")
    names = [f"{name}:{'x'.join(map(str, sizes))}" for name, *sizes in GRIDS]
    run = subprocess.run([sys.executable, script, *names], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    lines = run.stdout.splitlines()[-len(GRIDS) :]
    return dict(zip(GRIDS, map(json.loads, lines), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_stages_pass_microbatches_at_the_same_time(met, grid):
    _, stages, _, microbatches = grid
    assert met[grid]["together"] == min(stages, microbatches)


@pytest.mark.slow
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_stage_makes_its_passes_one_by_one_in_the_order_of_the_schedule(met, grid):
    name, stages, virtual, microbatches = grid
    assert met[grid]["order"] == [
        list(map(list, order)) for order in schedule.passes(name, microbatches, stages, virtual)
    ]
    assert not met[grid]["crowded"], "two were in one stage at once"
