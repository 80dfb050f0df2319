"""Stagecraft as a library: one setting, any topology, in your own code.

    import stagecraft as sc

    sc.parallelize(model, sc.Parallel(...))
    model.fit(dataset, epochs=3)

The import takes milliseconds: TensorFlow is imported when a function needs it, and nothing of the
process changes before that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagecraft.common import lazy

if TYPE_CHECKING:
    from stagecraft import estimator as estimator
    from stagecraft.common.errors import SettingError as SettingError, UserError as UserError
    from stagecraft.examples_task import ExamplesTask as ExamplesTask
    from stagecraft.fitting.engine import TrainingEngine as TrainingEngine, engine as engine
    from stagecraft.fitting.fit import fit as fit
    from stagecraft.fitting.history import History as History
    from stagecraft.fitting.parity import check_parity as check_parity
    from stagecraft.fitting.plan import plan as plan
    from stagecraft.parallel_model.session import parallelize as parallelize
    from stagecraft.parallel_model.workers import connect as connect
    from stagecraft.topology import Parallel as Parallel, virtual_devices as virtual_devices
    from stagecraft.trainer_module.data.batch import Batch as Batch
    from stagecraft.trainer_module.data.tasks.metric import Metric as Metric
    from stagecraft.trainer_module.data.tasks.task import Task as Task
    from stagecraft.trainer_module.optimization.optimizers.muon.muon_optimizer import Muon as Muon
    from stagecraft.trainer_module.parity.report import ParityReport as ParityReport
    from stagecraft.trainer_module.planning.plan import Plan as Plan
    from stagecraft.training import train as train
    from stagecraft.tuning import tuner_fn as tuner_fn

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = lazy.exports(__name__)
__all__ += ["__version__"]
