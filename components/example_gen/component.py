"""The Cifar10ExampleGen component."""

from __future__ import annotations

from typing import Any

from tfx.dsl.components.base import executor_spec

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import base, executor, spans
from stagecraft.schemas.features import DATASETS


class Cifar10ExampleGenSpec(base.SourceSpec):
    """Interface of Cifar10ExampleGen."""

    PARAMETERS = base.parameters(dataset=str, sample_train=int, sample_test=int, cache_dir=str)


class Cifar10ExampleGen(base.SourceExampleGen):
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
        if shards < 1:
            raise SettingError("shards", shards, "is less than 1", "48")
        super().__init__(
            source,
            span,
            dataset=dataset,
            val_fraction=val_fraction,
            shards=shards,
            sample_train=sample_train,
            sample_test=sample_test,
            cache_dir=cache_dir,
        )
