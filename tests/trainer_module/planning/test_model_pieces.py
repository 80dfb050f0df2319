"""Larger pieces for a search: which cuts stay, and that costs add up."""

import dataclasses
import itertools

import numpy as np
import pytest
import random_costs

from stagecraft.trainer_module.models.costs import Operation, StageCost, Tied, Times
from stagecraft.trainer_module.planning import model_pieces
from stagecraft.trainer_module.planning.range_costs import Sums

MANY = 4 * model_pieces.ENOUGH


def crossed_by(tensors: list[int]) -> list[StageCost]:
    """Pieces after which so many tensors cross."""
    (piece,) = random_costs.pieces(0, 1)
    return [dataclasses.replace(piece, output_tensors=count) for count in tensors]


# --- which cuts stay ---


@pytest.mark.parametrize("count", [1, 2, model_pieces.ENOUGH])
def test_few_pieces_keep_all_cuts(count):
    assert model_pieces.kept_cuts(crossed_by([3] * count)) == list(range(1, count))


@pytest.mark.parametrize("count", [model_pieces.ENOUGH + 1, 300, 511, 512, 513, MANY, MANY + 7])
def test_equal_cuts_are_kept_at_equal_distances(count):
    kept = model_pieces.kept_cuts(crossed_by([1] * count))
    sizes = np.diff([0, *kept, count])
    assert len(sizes) <= model_pieces.ENOUGH
    assert set(sizes[:-1]) == {-(-count // model_pieces.ENOUGH)} and sizes[-1] <= sizes[0]


def test_cheap_cuts_are_kept():
    """As of a transformer: two tensors cross inside a residual branch."""
    tensors = [1, 2, 2, 1, 2, 2, 2] * 48
    kept = model_pieces.kept_cuts(crossed_by(tensors))
    assert kept == [place + 1 for place, each in enumerate(tensors[:-1]) if each == 1]


def test_a_long_stretch_without_cheap_cuts_can_be_cut():
    """As of a U-Net: the more tensors cross, the deeper a piece is; one crosses at both ends."""
    side = list(range(1, MANY // 2 + 1))
    tensors = [*side, *side[::-1]]
    kept = model_pieces.kept_cuts(crossed_by(tensors))
    sizes = np.diff([0, *kept, MANY])
    assert len(kept) < model_pieces.ENOUGH + 64
    assert max(sizes) <= 2 * MANY / 64
    assert 1 in kept and MANY - 1 in kept


def test_named_cuts_stay():
    named = [2, 5, 700]
    kept = model_pieces.kept_cuts(crossed_by([1] * MANY), named)
    assert set(named) <= set(kept) and kept == sorted(set(kept))
    assert max(kept) < MANY


def test_the_outputs_of_the_model_are_no_cut():
    kept = model_pieces.kept_cuts(crossed_by([*[2] * (MANY - 1), 1]))
    assert len(kept) == model_pieces.ENOUGH - 1 and MANY not in kept


# --- what they cost ---

SUMS = (
    *("layers", "parameters", "trainable", "frozen", "flops", "activation_bytes", "shard_bytes"),
    *("split_parameters", "split_trainable", "split_flops", "split_activation_bytes"),
)


def merged(pieces: list[StageCost], cuts: list[int]) -> list[StageCost]:
    times = [Times(each.flops, 2 * each.flops) for each in pieces]
    return model_pieces.merged(pieces, times, cuts)[0]


@pytest.mark.parametrize("cuts", [[], [1], [4], [2, 3], [1, 2, 3, 4]])
def test_costs_add_up(cuts):
    pieces = random_costs.pieces(3, 5, frozen=2)
    times = [Times(number, 10 * number) for number in range(5)]
    found, of_found = model_pieces.merged(pieces, times, cuts)
    for (begin, end), one, both in zip(
        itertools.pairwise([0, *cuts, 5]), found, of_found, strict=True
    ):
        parts = pieces[begin:end]
        for name in SUMS:
            assert getattr(one, name) == sum(getattr(part, name) for part in parts)
        assert both == (sum(range(begin, end)), 10 * sum(range(begin, end)))
        ends = one.first, one.last, one.input_bytes, one.output_bytes, one.output_tensors
        first, last = parts[0], parts[-1]
        assert ends == (
            *(first.first, last.last, first.input_bytes),
            *(last.output_bytes, last.output_tensors),
        )


def test_all_cuts_change_nothing():
    pieces = random_costs.pieces(1, 4)
    assert merged(pieces, [1, 2, 3]) == pieces


def test_operations_and_kinds_follow_the_pieces():
    pieces = random_costs.pieces(0, 3)
    operations = [(Operation(1.0, 2.0),), (), (Operation(3.0, 4.0), Operation(5.0, 6.0))]
    pieces = [
        dataclasses.replace(piece, operations=each)
        for piece, each in zip(pieces, operations, strict=True)
    ]
    (one,) = merged(pieces, [])
    assert [each.flops for each in one.operations] == [1.0, 3.0, 5.0]
    same, other = merged(pieces, [2])[0], merged([pieces[1], pieces[0], pieces[2]], [2])[0]
    assert same.kind != other.kind


def test_the_fewest_shards_of_a_piece_limit_all():
    limits = [None, 8, 3]
    pieces = [
        dataclasses.replace(piece, most_shards=limit)
        for piece, limit in zip(random_costs.pieces(0, 3), limits, strict=True)
    ]
    assert [each.most_shards for each in merged(pieces, [1])] == [None, 3]
    assert [each.most_shards for each in merged(pieces, [])] == [3]


@pytest.mark.parametrize("trained", [True, False])
def test_a_weight_of_several_pieces_counts_once(trained):
    weight = Tied("embedding", 100, trained)
    size = {"trainable" if trained else "frozen": 100, "parameters": 100}
    other = {"frozen" if trained else "trainable": 0}
    tied = [True, False, True, True]
    pieces = [
        dataclasses.replace(piece, tied=(weight,), **size, **other)
        if uses
        else dataclasses.replace(piece, parameters=7, trainable=7, frozen=0)
        for piece, uses in zip(random_costs.pieces(0, 4, split=False), tied, strict=True)
    ]
    for cuts in ([], [1], [3], [1, 2], [1, 2, 3]):
        found = merged(pieces, cuts)
        assert all(each.frozen + each.trainable == each.parameters for each in found)
        assert all(each.tied.count(weight) <= 1 for each in found)
        for of_trained in (False, True):
            whole = 7 + 100 * (trained or not of_trained)
            sums = Sums(found, shards=1)
            assert sums.parameters(0, len(found), trained=of_trained) == whole
