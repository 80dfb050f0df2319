import pathlib
from collections.abc import Callable

import numpy as np
import pytest
from model_arguments import classes

from stagecraft.trainer_module.engines.factory import connect
from stagecraft.trainer_module.models.layers import own_layers
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.parity import cases, tolerances
from stagecraft.trainer_module.parity.check import judge
from stagecraft.trainer_module.parity.task import Results, Task, save
from stagecraft.trainer_module.parity.worker import Driver, measure
from stagecraft.trainer_module.settings import TrainingSettings

STEPS, BATCH, PARTS = 2, 8, 2
MODULE = "parity_models"


class Ran:
    """A model on one device, and in parts."""

    def __init__(self, folder: pathlib.Path, model: str):
        self._folder = folder
        draw = np.random.RandomState(0)
        data = str(folder / "data.npz")
        images = draw.randn(2 * BATCH, 32, 32, 3).astype(np.float32)
        np.savez(data, inputs=images, targets=draw.randint(0, 3, 2 * BATCH))
        own = TrainingSettings.model_validate(
            {"train": {"model": f"{MODULE}:{model}"}, "parallel": {"accumulate": PARTS}}
        )
        (case,) = cases.select("configured", own, steps=STEPS, batch_size=BATCH)
        reference = case.reference(same_parts=True)
        self.reference = self._measure("reference", reference, data, None)
        self.found = self._measure("found", case.settings, data, str(folder / "reference.npz"))

    def _measure(
        self, name: str, settings: TrainingSettings, data: str, reference: str | None
    ) -> Results:
        out = str(self._folder / f"{name}.npz")
        task = Task(
            settings=settings,
            arguments=classes(3),
            data=data,
            steps=STEPS,
            out=out,
            reference=reference,
        )
        # In this process there are no devices but the one.
        parallel = cases.changed_parallel(settings.parallel, virtual_devices=0)
        devices = topology.resolve(parallel)
        measure(task, devices, connect(devices, parallel))
        return Results(out)

    def why(self, found: Results | None = None) -> list[str]:
        """What differs."""
        findings = judge([found or self.found], self.reference, "float32", STEPS)
        return [str(finding) for finding in findings if not finding.equal]

    def changed(self, change: Callable[[str, np.ndarray], np.ndarray]) -> Results:
        """What was found, with other numbers."""
        arrays = {n: v for n, v in self.found.under("").items() if n != "notes"}
        changed = {name: change(name, value) for name, value in arrays.items()}
        save(str(self._folder / "changed.npz"), changed, self.found.notes)
        return Results(str(self._folder / "changed.npz"))


@pytest.fixture(scope="module")
def zeros(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A bias whose gradient is zero, and a head in float32."""
    return Ran(tmp_path_factory.mktemp("zeros"), "zero_and_float32")


@pytest.fixture(scope="module")
def penalties(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Batch statistics, and the mean of a penalty."""
    return Ran(tmp_path_factory.mktemp("penalties"), "norm_mean_penalties")


def test_a_gradient_of_zero_and_a_float32_head_are_equal(zeros):
    assert zeros.found.under("0/gradients/0/").keys() == {
        "conv/kernel", "conv/bias", "head/kernel", "head/bias",
    }  # fmt: skip
    assert zeros.why() == []
    assert zeros.reference.notes.float32 == []


def test_the_bias_is_measured_and_the_rest_is_not(zeros):
    """Only where terms cancel is a tolerance another one than the derived."""
    lengths = zeros.reference.scalars("depth/")
    magnitudes = zeros.reference.scalars("0/magnitude/0/")
    roundings = zeros.reference.scalars("0/rounding/0/")
    kinks = int(zeros.reference.under("nonsmooth_ops")[""])
    wider = {
        path
        for path, size in magnitudes.items()
        if tolerances.measured_tolerance("float32", lengths[path], magnitudes, roundings[path])
        > tolerances.tolerance("float32", lengths[path], size, kinks)
    }
    assert wider == {"conv/bias"}


@pytest.mark.parametrize("path", ["conv/kernel", "head/kernel", "head/bias"])
def test_every_other_variable_is_judged_as_before(zeros, path):
    faulty = zeros.changed(lambda n, v: v * 1.1 if n == f"2/gradients/1/{path}" else v)
    assert len(zeros.why(faulty)) == 1
    assert zeros.why(faulty)[0].startswith(f"gradients after 2 steps, {path}:")


def test_float64_is_judged_to_1e_10(zeros):
    moved = zeros.changed(lambda n, v: v + 2e-10 if n == "float64/model/head/kernel" else v)
    assert len(zeros.why(moved)) == 1
    assert "float64 trajectory after 2 steps, model/head/kernel" in zeros.why(moved)[0]


@pytest.mark.slow
def test_with_statistics_penalties_are_held_against_a_whole_batch(penalties):
    assert penalties.reference.notes.has_state
    assert penalties.reference.under("copies/gradients/0/").keys() == (
        penalties.found.under("copies/gradients/0/").keys()
    )
    assert penalties.why() == []


@pytest.mark.slow
def test_a_penalty_that_is_combined_otherwise_is_found(penalties):
    """All but the batch of equal parts is equal: the reference has the same parts."""
    faulty = penalties.changed(lambda n, v: v * 0.9 if n.startswith("copies/") else v)
    (why,) = penalties.why(faulty)
    assert why.startswith("gradients of a batch of equal parts, ")


def test_layers_adapt_to_the_examples(tmp_path):
    settings = TrainingSettings.model_validate(
        {"train": {"model": "airbench_2_2_2", "batch_size": BATCH}}
    )
    draw = np.random.RandomState(0)
    images = draw.randn(2 * BATCH, 9, 9, 3).cumsum(axis=1).astype(np.float32)
    data, out = (str(tmp_path / name) for name in ("data.npz", "out.npz"))
    np.savez(data, inputs=images, targets=draw.randint(0, 3, 2 * BATCH))
    task = Task(
        settings=settings,
        arguments=classes(3, (9, 9, 3)),
        data=data,
        steps=STEPS,
        out=out,
        reference=None,
    )
    devices = topology.resolve(settings.parallel)
    driver = Driver(task, devices, connect(devices, settings.parallel))
    expected = own_layers.kernel(own_layers.covariance(images, 2), (2, 2, 3, 24))
    for kernel in (
        driver.model(settings).get_layer("whitening").kernel.numpy(),
        driver.engine(settings).weights()["whitening/kernel"],
    ):
        np.testing.assert_array_equal(kernel, expected.astype(np.float32))
