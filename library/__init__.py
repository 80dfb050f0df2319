"""Stagecraft as a library: one setting, any topology, in your own code.

    import stagecraft as sc

    history = sc.fit(model, dataset, loss="mse", optimizer="adam", parallel=sc.Parallel(...))

The import takes milliseconds: TensorFlow is imported when a function needs it, and nothing of the
process changes before that.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

__all__ = [
    "Batch",
    "Metric",
    "Parallel",
    "SettingError",
    "Task",
    "UserError",
    "__version__",
    "estimator",
]

if TYPE_CHECKING:
    from stagecraft import estimator as estimator
    from stagecraft.schemas.errors import SettingError as SettingError
    from stagecraft.schemas.errors import UserError as UserError
    from stagecraft.trainer_module.data.batch import Batch as Batch
    from stagecraft.trainer_module.data.tasks.metric import Metric as Metric
    from stagecraft.trainer_module.data.tasks.task import Task as Task
    from stagecraft.trainer_module.parallel.settings import ParallelSettings as Parallel

__version__ = "0.1.0"

_HERE = "stagecraft.trainer_module"

_PLACES = {
    "Batch": f"{_HERE}.data.batch:Batch",
    "Metric": f"{_HERE}.data.tasks.metric:Metric",
    "Parallel": f"{_HERE}.parallel.settings:ParallelSettings",
    "SettingError": "stagecraft.schemas.errors:SettingError",
    "Task": f"{_HERE}.data.tasks.task:Task",
    "UserError": "stagecraft.schemas.errors:UserError",
    "estimator": "stagecraft.estimator",
}
"""Public name -> module, and the name there."""


def __getattr__(name: str) -> Any:
    """Imports a public name when it is used for the first time (PEP 562)."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = pkgutil.resolve_name(_PLACES[name])
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
