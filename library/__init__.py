"""Stagecraft as a library: one setting, any topology, in your own code.

    import stagecraft as sc

    sc.parallelize(model, sc.Parallel(...))
    model.fit(dataset, epochs=3)

The import takes milliseconds: TensorFlow is imported when a function needs it, and nothing of the
process changes before that.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

__all__ = [
    "Batch",
    "ExamplesTask",
    "History",
    "Metric",
    "Muon",
    "Parallel",
    "Plan",
    "Proof",
    "SettingError",
    "Task",
    "TrainingEngine",
    "UserError",
    "__version__",
    "check_parity",
    "connect",
    "engine",
    "estimator",
    "fit",
    "parallelize",
    "plan",
    "train",
    "tuner_fn",
    "virtual_devices",
]

if TYPE_CHECKING:
    from stagecraft import estimator as estimator
    from stagecraft.examples_task import ExamplesTask as ExamplesTask
    from stagecraft.fitting.devices import virtual_devices as virtual_devices
    from stagecraft.fitting.engine import TrainingEngine as TrainingEngine
    from stagecraft.fitting.engine import engine as engine
    from stagecraft.fitting.fit import fit as fit
    from stagecraft.fitting.history import History as History
    from stagecraft.fitting.parity import Proof as Proof
    from stagecraft.fitting.parity import check_parity as check_parity
    from stagecraft.fitting.plan import Plan as Plan
    from stagecraft.fitting.plan import plan as plan
    from stagecraft.objects.parallel import Parallel as Parallel
    from stagecraft.parallel_model.session import parallelize as parallelize
    from stagecraft.parallel_model.workers import connect as connect
    from stagecraft.schemas.errors import SettingError as SettingError
    from stagecraft.schemas.errors import UserError as UserError
    from stagecraft.trainer_module.data.batch import Batch as Batch
    from stagecraft.trainer_module.data.tasks.metric import Metric as Metric
    from stagecraft.trainer_module.data.tasks.task import Task as Task
    from stagecraft.trainer_module.optimization.optimizers.muon.muon_optimizer import Muon as Muon
    from stagecraft.training import train as train
    from stagecraft.tuning import tuner_fn as tuner_fn

__version__ = "0.1.0"

_HERE = "stagecraft.trainer_module"
_FITTING = "stagecraft.fitting"

_PLACES = {
    "Batch": f"{_HERE}.data.batch:Batch",
    "ExamplesTask": "stagecraft.examples_task:ExamplesTask",
    "History": f"{_FITTING}.history:History",
    "Metric": f"{_HERE}.data.tasks.metric:Metric",
    "Muon": f"{_HERE}.optimization.optimizers.muon.muon_optimizer:Muon",
    "Parallel": "stagecraft.objects.parallel:Parallel",
    "Plan": f"{_FITTING}.plan:Plan",
    "Proof": f"{_FITTING}.parity:Proof",
    "SettingError": "stagecraft.schemas.errors:SettingError",
    "Task": f"{_HERE}.data.tasks.task:Task",
    "TrainingEngine": f"{_FITTING}.engine:TrainingEngine",
    "UserError": "stagecraft.schemas.errors:UserError",
    "check_parity": f"{_FITTING}.parity:check_parity",
    "connect": "stagecraft.parallel_model.workers:connect",
    "engine": f"{_FITTING}.engine:engine",
    "estimator": "stagecraft.estimator",
    "fit": f"{_FITTING}.fit:fit",
    "parallelize": "stagecraft.parallel_model.session:parallelize",
    "plan": f"{_FITTING}.plan:plan",
    "train": "stagecraft.training:train",
    "tuner_fn": "stagecraft.tuning:tuner_fn",
    "virtual_devices": f"{_FITTING}.devices:virtual_devices",
}
"""Public name -> module, and the name there."""


def __getattr__(name: str) -> Any:
    """Imports a public name when it is used for the first time (PEP 562)."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stagecraft.schemas import distribution

    distribution.check()
    found = globals()[name] = pkgutil.resolve_name(_PLACES[name])
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
