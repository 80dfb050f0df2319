"""The Cifar10ExampleGen component."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import driver, executor, spans
from stagecraft.components.example_gen.archives import files
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.schemas.features import DATASETS


class Cifar10ExampleGenSpec(types.ComponentSpec):
    """Interface of Cifar10ExampleGen."""

    PARAMETERS = {
        "source": ExecutionParameter(type=str),
        "dataset": ExecutionParameter(type=str),
        "val_fraction": ExecutionParameter(type=float),
        "shards": ExecutionParameter(type=int),
        "sample_train": ExecutionParameter(type=int),
        "sample_test": ExecutionParameter(type=int),
        "cache_dir": ExecutionParameter(type=str),
        "code_fingerprint": ExecutionParameter(type=str),
        driver.RANGE: ExecutionParameter(type=str, optional=True),
    }
    INPUTS: dict[str, ChannelParameter] = {}
    OUTPUTS = {"examples": ChannelParameter(type=standard_artifacts.Examples)}


class Cifar10ExampleGen(base_beam_component.BaseBeamComponent):
    """Reads a CIFAR data set and writes it as tf.Examples, in a fixed number of shards.

    The output ``examples`` has the splits ``train``, ``val`` (held out of the data set's train
    part) and ``eval`` (its test part). Each split has ``shards`` uncompressed TFRecord files of
    tf.train.Example with the features that ``stagecraft.schemas.features`` names: ``image``
    (bytes, 32 * 32 * 3 uint8 values in HWC order), ``label`` and ``id`` (int64). The same content
    gives the same bytes. The artifact's custom properties ``count_train``, ``count_val`` and
    ``count_eval`` are the numbers of examples. ``source`` is the name of the archive or folder, or
    ``sample``.

    TFX reuses the cached result as long as the content of the source is the same, even at another
    path.
    """

    SPEC_CLASS = Cifar10ExampleGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)
    DRIVER_CLASS = driver.Driver

    def __init__(
        self,
        source: str,
        dataset: str = "cifar10",
        val_fraction: float = 0.1,
        shards: int = 48,
        sample_train: int = 5_000,
        sample_test: int = 1_000,
        cache_dir: str = "~/.cache/stagecraft",
        span: Any = spans.LATEST,
    ) -> None:
        """Configures the source.

        Args:
          source: path of an official archive (``.tar.gz``, binary or python layout) or of a
            folder with its files; ``download`` for the published archive; ``sample`` for a small
            generated data set of drawn shapes.
          dataset: key of ``stagecraft.schemas.features.DATASETS``.
          val_fraction: fraction of the train part that is held out.
          shards: files per split.
          sample_train: images in the sample's train part.
          sample_test: images in the sample's test part.
          cache_dir: folder of downloads.
          span: of a ``source`` with words such as ``{SPAN}``: ``latest``, a number, or a date.

        Raises:
          SettingError: an argument is invalid.
        """
        if dataset not in DATASETS:
            raise SettingError("dataset", dataset, "is unknown", f"one of {', '.join(DATASETS)}")
        if source == "sample" and dataset != "cifar10":
            raise SettingError("source", source, f"is not {dataset}", "dataset: cifar10")
        if isinstance(source, str):  # a runtime parameter has no value yet
            files.check_scheme(source)
        if shards < 1:
            raise SettingError("shards", shards, "is less than 1", "48")
        super().__init__(
            Cifar10ExampleGenSpec(
                source=source,
                dataset=dataset,
                val_fraction=val_fraction,
                shards=shards,
                sample_train=sample_train,
                sample_test=sample_test,
                cache_dir=cache_dir,
                code_fingerprint=code_fingerprint("stagecraft.components.example_gen.executor"),
                examples=types.Channel(type=standard_artifacts.Examples),
                **driver.choice(span),
            )
        )
