"""Times of measured pieces in microbatches of other sizes."""

import itertools
from typing import Any

import pytest
import random_costs
from chains import chain, settings

from stagecraft.trainer_module.models.costs import Times
from stagecraft.trainer_module.planning import measure
from stagecraft.trainer_module.planning.device_times import Measured, MeasuredTimes
from stagecraft.trainer_module.planning.model_pieces import prepare
from stagecraft.trainer_module.planning.search.search import Search
from stagecraft.trainer_module.planning.search.space import Space

START, EXAMPLE = Times(0.004, 0.006), Times(0.001, 0.002)


def affine(examples: float) -> Times:
    """A pass that takes a fixed time and one for each example."""
    return Times(*(start / examples + each for start, each in zip(START, EXAMPLE, strict=True)))


def predicted(few: Times, many: Times, *, remat: bool = False, seed: int = 0) -> MeasuredTimes:
    pieces = random_costs.pieces(seed, 1)
    return MeasuredTimes(pieces, Measured(2, [few]), Measured(32, [many]), remat=remat)


@pytest.mark.parametrize("examples", [1, 2, 8, 32, 64])
def test_two_sizes_tell_all(examples):
    (found,) = predicted(affine(2), affine(32))(examples, 1)
    assert found == pytest.approx(affine(examples))


def test_recomputation_is_not_included():
    few, many = (Times(each.forward, sum(each)) for each in (affine(2), affine(32)))
    (found,) = predicted(few, many, remat=True)(8, 1)
    assert found == pytest.approx(affine(8))


@pytest.mark.parametrize("few", [Times(0.5, 0.5), Times(2.0, 3.0), Times(99.0, 99.0)], ids=str)
def test_more_examples_never_take_longer_for_each(few):
    many = Times(1.0, 2.0)
    times = predicted(few, many)
    (large,) = times(32, 1)
    assert large == pytest.approx(many), "what was measured with many examples stays"
    every = [times(examples, 1)[0] for examples in (1, 2, 5, 32, 100)]
    for before, after in itertools.pairwise(every):
        assert after.forward <= before.forward and after.backward <= before.backward
        assert min(after) >= 0


def test_shards_divide_the_time_of_examples():
    (piece,) = random_costs.pieces(3, 1)
    share = piece.split_flops / piece.flops
    assert share > 0.1
    (found,) = predicted(affine(2), affine(32), seed=3)(8, 2)
    # Operations of a shard are whole numbers.
    own = round(piece.flops - piece.split_flops / 2) / piece.flops
    assert own == pytest.approx(1 - share / 2, abs=1 / piece.flops)
    assert found.forward == pytest.approx(own * EXAMPLE.forward + START.forward / 8)


@pytest.mark.parametrize(("start", "fewer"), [(0.0, False), (0.008, True)])
def test_a_search_measures_small_microbatches_and_avoids_slow_ones(monkeypatch, start, fewer):
    sizes: list[int] = []

    def piece_times(pieces: Any, found: Any, *, examples: int, **_: Any) -> list[Times]:
        sizes.append(examples)
        return [Times(0.001 + start / examples, 0.002 + start / examples) for _ in found]

    monkeypatch.setattr(measure, "piece_times", piece_times)
    given = settings(strategy="auto", stages=2, costs="measured", batch_size=32, virtual_devices=2)
    work = prepare(chain(8), given, "CPU:0", for_search=True).work
    (best, *_) = Search(work, Space(work, hosts=1, devices=2)).run().best
    assert sizes == [32, 2]
    assert best.degrees.stages == 2
    assert (best.degrees.microbatches < 8) is fewer
