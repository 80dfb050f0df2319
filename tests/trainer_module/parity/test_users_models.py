"""Models as users bring them: nothing differs where nothing does, and each fault is found."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

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

SLOW = {
    "accumulate-4": MODELS,
    "mirrored-2": MODELS,
    "microbatches-2": MODELS,
    "grid-2x2": MODELS,
}


def _case(model: str, topology: str) -> Case:
    optimizer = "adamw" if model in ("vit", "group_norm", "mobilenet") else "sgd"
    train = {"model": f"parity_models:{model}", "optimizer": optimizer}
    settings = TrainingSettings.model_validate({"train": train})
    (case,) = cases.select(topology, settings, steps=STEPS, batch_size=BATCH)
    return case


class Bench:
    """Runs them: a process a topology, with all models in it."""

    def __init__(self, folder: pathlib.Path, models: tuple[str, ...]):
        self._folder, self._models = folder, models
        self._data = folder / "data.npz"
        draw = np.random.RandomState(0)
        labels = draw.randint(0, CLASSES, 4 * BATCH)
        images = draw.randn(len(labels), 32, 32, 3) + np.eye(32)[labels][:, :, None, None]
        np.savez(self._data, images=images.astype(np.float32), labels=labels.astype(np.int64))

    def run(self) -> None:
        """References first; then the rest, two processes at a time."""
        parts = {model: (4, 2) if model in STATISTICS else (1,) for model in self._models}
        self._process(
            "references",
            [self._reference(model, each) for model in parts for each in parts[model]],
        )
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._topology, TOPOLOGIES))

    def _topology(self, topology: str) -> None:
        faults = (None, *FAULTS.get(topology, ()))
        self._process(
            topology,
            [self._job(model, topology, fault) for model in self._models for fault in faults],
        )

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
        return self._written(settings, self._reference_stem(model, parts), None, None)

    def _job(self, model: str, topology: str, fault: str | None) -> dict[str, str | None]:
        case = _case(model, topology)
        reference = str(self.file(self._reference_stem(model, case.parts)))
        return self._written(case.settings, _stem(model, topology, fault), reference, fault)

    def _written(
        self, settings: TrainingSettings, stem: str, reference: str | None, fault: str | None
    ) -> dict[str, str | None]:
        task = self._folder / f"{stem}.json"
        Task(
            settings=settings,
            num_classes=CLASSES,
            data=str(self._data),
            steps=STEPS,
            out=str(self.file(stem)),
            reference=reference,
        ).write(str(task))
        return {"task": str(task), "fault": fault}

    def _reference_stem(self, model: str, parts: int) -> str:
        return f"{model}-in-{parts if model in STATISTICS else 1}"

    def file(self, stem: str) -> pathlib.Path:
        """Of a task's results."""
        return self._folder / f"{stem}.npz"

    def findings(self, model: str, topology: str) -> list[Finding]:
        """Of a topology without a fault."""
        found = Results(str(self.file(_stem(model, topology, None))))
        return list(judge([found], self.reference(model, topology), "float32", STEPS))

    def reference(self, model: str, topology: str) -> Results:
        """That a topology is held against."""
        parts = _case(model, topology).parts
        return Results(str(self.file(self._reference_stem(model, parts))))

    def fault(self, model: str, topology: str, fault: str) -> Finding:
        """Of the gradients of a topology with a fault."""
        found = Results(str(self.file(_stem(model, topology, fault))))
        reference = self.reference(model, topology)
        return criteria.gradients(
            found.under("0/gradients/0/"),
            reference.under("0/gradients/0/"),
            precision="float32",
            lengths=reference.scalars("length/"),
            magnitudes=reference.scalars("0/magnitude/0/"),
            roundings=reference.scalars("0/rounding/0/"),
            kinks=int(reference.under("kinks")[""]),
        )


def _stem(model: str, topology: str, fault: str | None) -> str:
    return f"{model}-{topology}-{fault}".replace(" ", "_")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """After all of it has run."""
    made = Bench(tmp_path_factory.mktemp("parity"), MODELS)
    made.run()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("model", MODELS)
def test_nothing_differs(bench: Bench, model: str, topology: str) -> None:
    differs = [str(finding) for finding in bench.findings(model, topology) if not finding.equal]
    assert not differs


@pytest.mark.slow
@pytest.mark.parametrize(("topology", "fault"), [(t, f) for t in FAULTS for f in FAULTS[t]])
@pytest.mark.parametrize("model", MODELS)
def test_a_fault_is_found(bench: Bench, model: str, topology: str, fault: str) -> None:
    assert bench.fault(model, topology, fault).ratio > 10
