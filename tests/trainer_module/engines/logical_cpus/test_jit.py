import re

import driving
import pytest
from driving import GRID, MIRRORED, ONE, STAGES, label, rare

from stagecraft.trainer_module.engines import placement_check


@pytest.mark.parametrize("remat", [rare(False), True])
@pytest.mark.parametrize("parallel", [rare(ONE), rare(MIRRORED), STAGES], ids=label)
def test_computes_the_same(parallel, remat):
    _, expected = driving.gradients(driving.make(ONE, "drop"))
    engine = driving.make({**parallel, "jit": True, "remat": remat}, "drop")
    _, found = driving.gradients(engine)
    # XLA's tanh is another approximation, off by 4 units in the last place at most.
    driving.assert_same_gradients(found, expected, units=1024)
    engine.train(driving.feed(engine), 2)  # with the check of the placement
    assert engine.step == 2


@pytest.mark.full
def test_batch_statistics_and_accumulation():
    same_parts = driving.make({**ONE, "accumulate": 4}, "norm")
    _, expected = driving.gradients(same_parts)
    engine = driving.make({**STAGES, "accumulate": 2, "jit": True}, "norm")
    _, found = driving.gradients(engine)
    driving.assert_same_gradients(found, expected, units=1024)
    same_parts.train(driving.feed(same_parts), 1)
    engine.train(driving.feed(engine), 1)
    name = "model/norm0/moving_mean"
    # A mean of at most 8 * 64 values below 8 in float32.
    assert engine.state()[name] == pytest.approx(same_parts.state()[name], abs=1e-6)


def test_the_check_sees_the_compiled_calls():
    engine = driving.make({**GRID, "jit": True})
    with placement_check.recording() as ops:
        engine.gradients(next(driving.feed(engine)))
    found = set()
    for op in ops:
        cell = re.search(r"replica(\d)_stage(\d)/(forward|backward)", op.name)
        if cell and op.kind in ("XlaLaunch", "PartitionedCall", "StatefulPartitionedCall"):
            backward = placement_check.GRADIENT in op.name or cell[3] == "backward"
            found.add((int(cell[1]), int(cell[2]), backward, op.device))
    assert found == {
        (replica, stage, backward, f"CPU:{2 * replica + stage}")
        for replica in (0, 1)
        for stage in (0, 1)
        for backward in (False, True)
    }
