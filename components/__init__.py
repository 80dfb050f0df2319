"""TFX components; each is imported on first use, so that light modules stay light."""

from __future__ import annotations

import typing

from stagecraft.schemas import lazy, moved

moved.install()

if typing.TYPE_CHECKING:
    from stagecraft.components.anomaly_gate.component import AnomalyGate as AnomalyGate
    from stagecraft.components.baseline import LatestBlessedBaseline as LatestBlessedBaseline
    from stagecraft.components.evaluator.component import Evaluator as Evaluator
    from stagecraft.components.example_gen.component import Cifar10ExampleGen as Cifar10ExampleGen
    from stagecraft.components.example_gen.kinds.avro import AvroExampleGen as AvroExampleGen
    from stagecraft.components.example_gen.kinds.image_folder import (
        ImageFolderExampleGen as ImageFolderExampleGen,
    )
    from stagecraft.components.example_gen.kinds.masks import MaskExampleGen as MaskExampleGen
    from stagecraft.components.example_gen.kinds.packaged_csv import (
        PackagedCsvExampleGen as PackagedCsvExampleGen,
    )
    from stagecraft.components.example_gen.kinds.parquet import (
        ParquetExampleGen as ParquetExampleGen,
    )
    from stagecraft.components.example_gen.kinds.text import TextExampleGen as TextExampleGen
    from stagecraft.components.import_schema import ImportSchema as ImportSchema
    from stagecraft.components.import_transform_graph import (
        ImportTransformGraph as ImportTransformGraph,
    )
    from stagecraft.components.parity_gate.component import ParityGate as ParityGate
    from stagecraft.components.pusher.component import Pusher as Pusher
    from stagecraft.components.report.component import TrainingReport as TrainingReport
    from stagecraft.components.trainer.component import Trainer as Trainer

__all__, __getattr__, __dir__ = lazy.exports(__name__)
