"""TFX components, metrics for a TFMA ``EvalConfig``, and what a module of the user calls.

Each name is imported on first use, so that light modules stay light. TFX finds a ``run_fn`` and a
``preprocessing_fn`` by their paths, such as ``stagecraft.components.run_fn``. The ``module`` of the
metrics in a ``MetricConfig`` is ``stagecraft.components``.
"""

from __future__ import annotations

import typing

from stagecraft.common import lazy

if typing.TYPE_CHECKING:
    from stagecraft.components.anomaly_gate.component import AnomalyGate as AnomalyGate
    from stagecraft.components.evaluator.classification_metrics import (
        Accuracy as Accuracy,
        BetterThanConstant as BetterThanConstant,
        ConfusionMatrix as ConfusionMatrix,
        CrossEntropy as CrossEntropy,
        ExpectedCalibrationError as ExpectedCalibrationError,
        MostConfidentlyWrong as MostConfidentlyWrong,
        TopAccuracy as TopAccuracy,
    )
    from stagecraft.components.evaluator.component import Evaluator as Evaluator
    from stagecraft.components.evaluator.results import read_evaluation as read_evaluation
    from stagecraft.components.evaluator.task_metric import (
        SampledPredictions as SampledPredictions,
        TaskBetterThanConstant as TaskBetterThanConstant,
        TaskMetric as TaskMetric,
    )
    from stagecraft.components.example_gen.component import Cifar10ExampleGen as Cifar10ExampleGen
    from stagecraft.components.example_gen.kinds.avro import AvroExampleGen as AvroExampleGen
    from stagecraft.components.example_gen.kinds.checked_csv import (
        PackagedCsvExampleGen as PackagedCsvExampleGen,
    )
    from stagecraft.components.example_gen.kinds.image_folder import (
        ImageFolderExampleGen as ImageFolderExampleGen,
    )
    from stagecraft.components.example_gen.kinds.masks import MaskExampleGen as MaskExampleGen
    from stagecraft.components.example_gen.kinds.parquet import (
        ParquetExampleGen as ParquetExampleGen,
    )
    from stagecraft.components.example_gen.kinds.sequences import (
        SequenceExampleGen as SequenceExampleGen,
    )
    from stagecraft.components.example_gen.kinds.text import TextExampleGen as TextExampleGen
    from stagecraft.components.example_gen.kinds.windows import WindowExampleGen as WindowExampleGen
    from stagecraft.components.fingerprints.code_fingerprint import (
        code_fingerprint as code_fingerprint,
    )
    from stagecraft.components.import_schema import ImportSchema as ImportSchema
    from stagecraft.components.import_transform_graph import (
        ImportTransformGraph as ImportTransformGraph,
    )
    from stagecraft.components.parity_gate.component import ParityGate as ParityGate
    from stagecraft.components.pusher.component import Pusher as Pusher
    from stagecraft.components.report.component import TrainingReport as TrainingReport
    from stagecraft.components.resolvers import (
        BaseModel as BaseModel,
        LastStatistics as LastStatistics,
        LatestBlessedBaseline as LatestBlessedBaseline,
        SpanWindow as SpanWindow,
    )
    from stagecraft.components.trainer.component import Trainer as Trainer
    from stagecraft.trainer_module.checkpointing.evaluations import Evaluation as Evaluation
    from stagecraft.trainer_module.data import input_data as input_data
    from stagecraft.trainer_module.models.build_model import build as build_model
    from stagecraft.trainer_module.preprocessing import preprocessing_fn as preprocessing_fn
    from stagecraft.trainer_module.run_fn import run_fn as run_fn
    from stagecraft.trainer_module.training import export as export, record as record

__all__, __getattr__, __dir__ = lazy.exports(__name__)
