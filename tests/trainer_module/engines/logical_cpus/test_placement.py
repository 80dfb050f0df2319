import collections
import contextlib
import re
from collections.abc import Iterator
from typing import Any

import driving
import pytest
import tensorflow as tf
from driving import GRID, MIRRORED, ONE, STAGES, label, rare
from tensorflow.python.eager import context

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.engines import placement_check
from stagecraft.trainer_module.engines.stage_replica import StageReplica


def _devices_of_parts(ops: list[placement_check.Op]) -> dict[str, set[str]]:
    """``replica0_stage1/update`` and the like -> devices."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for op in ops:
        if match := re.search(r"(replica\d_stage\d)/([a-z]+)", op.name):
            part = "backward" if placement_check.GRADIENT in op.name else match[2]
            found[f"{match[1]}/{part}"].add(op.device)
    return found


@pytest.mark.parametrize(
    "parallel",
    [
        rare({**STAGES, "accumulate": 2}),
        GRID,
        rare({**GRID, "accumulate": 2}),
        rare({**GRID, "remat": True}),
    ],
    ids=label,
)
def test_every_stage_is_on_its_device(parallel, grid):
    if parallel == GRID:
        _, ops = grid
    else:
        engine = driving.make(parallel, "norm", clip_norm=1.0, ema_decay=0.9)
        engine._placement_checked.add(0)
        with placement_check.recording() as ops:
            engine.train(driving.feed(engine), 1)
    found = _devices_of_parts(ops)
    replicas, stages = parallel.get("replicas", 1), parallel["stages"]
    parts = ["read", "forward", "backward", "norm", "update"]
    if replicas > 1:
        parts.append("reduce")
    for replica in range(replicas):
        for stage in range(stages):
            device = f"CPU:{replica * stages + stage}"
            for part in parts:
                assert found[f"replica{replica}_stage{stage}/{part}"] == {device}, part
    collectives = {op.device for op in ops if op.kind == "CollectiveReduceV2"}
    assert collectives == ({f"CPU:{i}" for i in range(4)} if replicas > 1 else set())


@pytest.mark.parametrize("parallel", [STAGES, rare(GRID), {**STAGES, "remat": True}], ids=label)
def test_a_layer_that_chooses_its_device_is_caught(parallel):
    engine = driving.make(parallel, "misplaced")
    with pytest.raises(UserError, match=r"own\d.* on CPU:0 instead of CPU:\d.*tf.device"):
        engine.train(driving.feed(engine), 1)


def test_a_cell_on_another_device_is_caught(monkeypatch):
    scope = StageReplica.scope

    @contextlib.contextmanager
    def elsewhere(self: StageReplica, part: str, after: Any = ()) -> Iterator[None]:
        with scope(self, part, after), tf.device("CPU:4"):
            yield

    engine = driving.make(STAGES)
    monkeypatch.setattr(StageReplica, "scope", elsewhere)
    with pytest.raises(UserError, match=r"replica0_stage\d.* on CPU:4 instead of CPU:\d"):
        engine.train(driving.feed(engine), 1)


@pytest.mark.parametrize(("parallel", "devices"), [(MIRRORED, "CPU:3,CPU:1"), (ONE, "CPU:3")])
def test_replicas_are_where_they_should_be(parallel, devices):
    engine = driving.make({**parallel, "devices": devices})
    engine._placement_checked.add(0)
    with placement_check.recording() as ops:
        engine.train(driving.feed(engine), 1)
    used = {op.device for op in ops if placement_check.GRADIENT in op.name}
    assert used == set(devices.split(","))


@pytest.mark.parametrize("parallel", [ONE, rare(GRID)], ids=label)
def test_recording_changes_nothing_and_leaves_nothing_behind(parallel):
    recorded, unseen = driving.make(parallel, "norm"), driving.make(parallel, "norm")
    unseen._placement_checked.add(0)
    for engine in (recorded, unseen):
        engine.train(driving.feed(engine), 3)
    driving.assert_same_bits(recorded.state(), unseen.state())

    @tf.function
    def later(value: tf.Tensor) -> tf.Tensor:
        return value * 2

    later(tf.constant(1.0))
    assert not context.context().export_run_metadata().function_graphs
