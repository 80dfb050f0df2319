"""Each task with a process for each worker; ``data/tasks/test_trainings.py`` has the rest."""

import numpy as np
import pytest
from task_cases import BATCH, CASES, arguments, examples, settings

from stagecraft.trainer_module.data.batch import to_arrays
from stagecraft.trainer_module.parity import cases
from stagecraft.trainer_module.parity.check import Check

STEPS = 4


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_several_processes_compute_what_one_device_computes(name, tmp_path):
    case, data = CASES[name], tmp_path / "data.npz"
    inputs, targets, _ = examples(case, 8 * BATCH)
    np.savez(data, **to_arrays("inputs", inputs), **to_arrays("targets", targets))
    chosen = cases.select(
        "workers-2,parameter_server-1",
        settings(case, optimizer="adamw"),
        steps=STEPS,
        batch_size=BATCH,
    )
    check = Check(data, arguments(case), tmp_path, steps=STEPS, timeout_seconds=600.0)
    for row in check.rows(chosen):
        assert row.equal, f"{row.topology}: {row.reason}"
        (exact,) = (found for found in row.findings if found.criterion == "float64 trajectory")
        assert exact.difference <= 1e-10, exact
