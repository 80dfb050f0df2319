import json
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from model_arguments import classes

from stagecraft.trainer_module.parity import cases, criteria
from stagecraft.trainer_module.parity.cases import Case
from stagecraft.trainer_module.parity.check import judge
from stagecraft.trainer_module.parity.criteria import Finding
from stagecraft.trainer_module.parity.task import Results, Task
from stagecraft.trainer_module.settings import TrainingSettings

STEPS, BATCH, CLASSES = 4, 24, 10
TOPOLOGIES = ("accumulate-4", "mirrored-2", "microbatches-2", "grid-2x2")
FAULTS = {"microbatches-2": ("dropped", "doubled"), "mirrored-2": ("not reduced",)}
"""Each is put into the engine of a topology that has the place for it."""

MODELS = (
    "vit",
    "own_attention",
    "group_norm",
    "batch_norm",
    "float32_head",
    "cast_inside",
    "sum_penalties",
    "mean_penalties",
    "norm_sum_penalties",
    "norm_mean_penalties",
    "spectral",
    "mobilenet",
)
"""Of `parity_models`."""

STATISTICS = ("batch_norm", "norm_sum_penalties", "norm_mean_penalties", "spectral", "mobilenet")
"""Whose reference takes each batch in the same parts."""

SLOW = {"mirrored-2": ("cast_inside", "spectral")}
"""What no faster test has; the rest of the table takes longer."""

FULL = {
    topology: tuple(model for model in MODELS if model not in SLOW.get(topology, ()))
    for topology in TOPOLOGIES
}

Table = dict[str, tuple[str, ...]]
"""Topology -> models."""


def _case(model: str, topology: str) -> Case:
    optimizer = "adamw" if model in ("vit", "group_norm", "mobilenet") else "sgd"
    train = {"model": f"parity_models:{model}", "optimizer": optimizer}
    settings = TrainingSettings.model_validate({"train": train})
    (case,) = cases.select(topology, settings, steps=STEPS, batch_size=BATCH)
    return case


class Bench:
    """Runs them: a process a topology, with all models in it."""

    def __init__(self, folder: pathlib.Path, table: Table):
        self._folder, self._table = folder, table
        self._data = folder / "data.npz"
        draw = np.random.RandomState(0)
        labels = draw.randint(0, CLASSES, 4 * BATCH)
        images = draw.randn(len(labels), 32, 32, 3) + np.eye(32)[labels][:, :, None, None]
        np.savez(self._data, inputs=images.astype(np.float32), targets=labels.astype(np.int64))

    def run(self) -> None:
        """References first; then the rest, two processes at a time."""
        references = {
            (model, self._parts(model, topology))
            for topology, models in self._table.items()
            for model in models
        }
        self._process("references", [self._reference(*each) for each in sorted(references)])
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._topology, self._table))

    def _topology(self, topology: str) -> None:
        faults = (None, *FAULTS.get(topology, ()))
        models = self._table[topology]
        self._process(
            topology, [self._job(model, topology, fault) for model in models for fault in faults]
        )

    def _parts(self, model: str, topology: str) -> int:
        return _case(model, topology).settings.parallel.parts if model in STATISTICS else 1

    def _process(self, name: str, jobs: list[dict[str, str | None]]) -> None:
        path = self._folder / f"{name}.jobs.json"
        path.write_text(json.dumps(jobs))
        program = pathlib.Path(__file__).with_name("several.py")
        own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        log = self._folder / f"{name}.log"
        with open(log, "wb") as output:
            ended = subprocess.run(
                [sys.executable, str(program), str(path)],
                env=dict(os.environ) | own,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        assert ended.returncode == 0, log.read_text(errors="replace")[-4000:]

    def _reference(self, model: str, parts: int) -> dict[str, str | None]:
        topology = "microbatches-2" if parts == 2 else "accumulate-4"
        settings = _case(model, topology).reference(same_parts=True)
        return self._written(settings, f"{model}-in-{parts}", None, None)

    def _job(self, model: str, topology: str, fault: str | None) -> dict[str, str | None]:
        reference = str(self._file(f"{model}-in-{self._parts(model, topology)}"))
        settings = _case(model, topology).settings
        return self._written(settings, _stem(model, topology, fault), reference, fault)

    def _written(
        self, settings: TrainingSettings, stem: str, reference: str | None, fault: str | None
    ) -> dict[str, str | None]:
        task = Task(
            settings=settings,
            arguments=classes(CLASSES),
            data=str(self._data),
            steps=STEPS,
            out=str(self._file(stem)),
            reference=reference,
        )
        return {"task": task.line(), "fault": fault}

    def _file(self, stem: str) -> pathlib.Path:
        return self._folder / f"{stem}.npz"

    def findings(self, model: str, topology: str) -> list[Finding]:
        """Of a topology without a fault."""
        reference = self.reference(model, topology)
        found = self._results(_stem(model, topology, None))
        return list(judge([found], reference, "float32", STEPS))

    def reference(self, model: str, topology: str) -> Results:
        """That a topology is held against."""
        return self._results(f"{model}-in-{self._parts(model, topology)}")

    def _results(self, stem: str) -> Results:
        failed = self._file(stem).with_suffix(".error")
        assert not failed.exists(), failed.read_text()
        return Results(str(self._file(stem)))

    def fault(self, model: str, topology: str, fault: str) -> Finding:
        """Of the gradients of a topology with a fault."""
        found = self._results(_stem(model, topology, fault))
        reference = self.reference(model, topology)
        return criteria.gradients(
            found.under("0/gradients/0/"),
            reference.under("0/gradients/0/"),
            precision="float32",
            depths=reference.scalars("depth/"),
            magnitudes=reference.scalars("0/magnitude/0/"),
            roundings=reference.scalars("0/rounding/0/"),
            nonsmooth_ops=int(reference.under("nonsmooth_ops")[""]),
        )


def _stem(model: str, topology: str, fault: str | None) -> str:
    return f"{model}-{topology}-{fault}".replace(" ", "_")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """After a part of the table has run."""
    return _ran(tmp_path_factory, SLOW)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """After the rest of it has run."""
    return _ran(tmp_path_factory, FULL)


def _ran(factory: pytest.TempPathFactory, table: Table) -> Bench:
    bench = Bench(factory.mktemp("parity"), table)
    bench.run()
    return bench


CELLS = [
    pytest.param(name, model, topology, id=f"{model}-{topology}", marks=getattr(pytest.mark, name))
    for name, table in (("slow", SLOW), ("full", FULL))
    for topology, models in table.items()
    for model in models
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("bench", "model", "topology"), CELLS)
def test_nothing_differs_and_each_fault_is_found(request, bench, model, topology):
    ran: Bench = request.getfixturevalue(bench)
    assert [str(finding) for finding in ran.findings(model, topology) if not finding.equal] == []
    for fault in FAULTS.get(topology, ()):
        # A part of two is half of what is summed, more or less; rounding is 1.
        assert ran.fault(model, topology, fault).ratio > 10, fault
