from __future__ import annotations

import pytest

from stagecraft.trainer_module import schedule

SIZES = [(1, 1), (1, 3), (4, 1), (2, 2), (4, 3), (3, 4), (8, 2)]


def test_the_clock_as_drawn():
    assert list(schedule.forward(4, 3)) == [
        [(0, 0)],
        [(1, 0), (0, 1)],
        [(2, 0), (1, 1), (0, 2)],
        [(3, 0), (2, 1), (1, 2)],
        [(3, 1), (2, 2)],
        [(3, 2)],
    ]


@pytest.mark.parametrize(("microbatches", "stages"), SIZES)
def test_every_cell_once_after_those_it_needs(microbatches, stages):
    cycles = list(schedule.forward(microbatches, stages))
    assert len(cycles) == microbatches + stages - 1
    when = {cell: cycle for cycle, cells in enumerate(cycles) for cell in cells}
    assert sum(map(len, cycles)) == len(when) == microbatches * stages
    for (microbatch, stage), cycle in when.items():
        assert stage == 0 or when[microbatch, stage - 1] < cycle
        assert microbatch == 0 or when[microbatch - 1, stage] < cycle


@pytest.mark.parametrize(("microbatches", "stages"), SIZES)
def test_backward_mirrors_forward(microbatches, stages):
    there = [cell for cells in schedule.forward(microbatches, stages) for cell in cells]
    back = [cell for cells in schedule.backward(microbatches, stages) for cell in cells]
    assert back == there[::-1]
    assert next(schedule.backward(microbatches, stages)) == [(microbatches - 1, stages - 1)]


@pytest.mark.parametrize(("microbatches", "stages"), SIZES)
def test_the_bubble_is_what_stays_empty_in_the_clock(microbatches, stages):
    cells = (microbatches + stages - 1) * stages
    assert schedule.bubble(microbatches, stages) == pytest.approx(
        (cells - microbatches * stages) / cells
    )
    assert schedule.speedup(microbatches, stages) == pytest.approx(
        stages * (1 - schedule.bubble(microbatches, stages))
    )


def test_two_stages_and_eight_microbatches():
    assert schedule.bubble(8, 2) == pytest.approx(1 / 9)
    assert schedule.speedup(8, 2) == pytest.approx(16 / 9)
