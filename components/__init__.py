"""TFX components; each is imported on first use, so that light modules stay light."""

from __future__ import annotations

import importlib
import typing

from stagecraft.schemas import distribution, moved

moved.install()

if typing.TYPE_CHECKING:
    from stagecraft.components.anomaly_gate.component import AnomalyGate
    from stagecraft.components.baseline import LatestBlessedBaseline
    from stagecraft.components.evaluator.component import Evaluator
    from stagecraft.components.example_gen.component import Cifar10ExampleGen
    from stagecraft.components.example_gen.kinds.avro import AvroExampleGen
    from stagecraft.components.example_gen.kinds.image_folder import ImageFolderExampleGen
    from stagecraft.components.example_gen.kinds.masks import MaskExampleGen
    from stagecraft.components.example_gen.kinds.packaged_csv import PackagedCsvExampleGen
    from stagecraft.components.example_gen.kinds.parquet import ParquetExampleGen
    from stagecraft.components.example_gen.kinds.text import TextExampleGen
    from stagecraft.components.import_schema import ImportSchema
    from stagecraft.components.import_transform_graph import ImportTransformGraph
    from stagecraft.components.parity_gate.component import ParityGate
    from stagecraft.components.pusher.component import Pusher
    from stagecraft.components.report.component import TrainingReport
    from stagecraft.components.trainer.component import Trainer

__all__ = [
    "AnomalyGate",
    "AvroExampleGen",
    "Cifar10ExampleGen",
    "Evaluator",
    "ImageFolderExampleGen",
    "ImportSchema",
    "ImportTransformGraph",
    "LatestBlessedBaseline",
    "MaskExampleGen",
    "PackagedCsvExampleGen",
    "ParityGate",
    "ParquetExampleGen",
    "Pusher",
    "TextExampleGen",
    "Trainer",
    "TrainingReport",
]

_HOMES = {
    "AnomalyGate": "anomaly_gate.component",
    "AvroExampleGen": "example_gen.kinds.avro",
    "Cifar10ExampleGen": "example_gen.component",
    "Evaluator": "evaluator.component",
    "ImageFolderExampleGen": "example_gen.kinds.image_folder",
    "ImportSchema": "import_schema",
    "ImportTransformGraph": "import_transform_graph",
    "LatestBlessedBaseline": "baseline",
    "MaskExampleGen": "example_gen.kinds.masks",
    "PackagedCsvExampleGen": "example_gen.kinds.packaged_csv",
    "ParityGate": "parity_gate.component",
    "ParquetExampleGen": "example_gen.kinds.parquet",
    "Pusher": "pusher.component",
    "TextExampleGen": "example_gen.kinds.text",
    "Trainer": "trainer.component",
    "TrainingReport": "report.component",
}


def __getattr__(name: str) -> typing.Any:
    """Imports an export where it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    distribution.check()
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
