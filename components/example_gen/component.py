"""Cifar10ExampleGen, and the base of ExampleGens that read one source into three splits."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import standard_artifacts

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import driver, executor, spans
from stagecraft.components.example_gen.archives import files
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.components.interface import channels, parameters
from stagecraft.schemas.features import DATASETS


class SourceSpec(types.ComponentSpec):
    """Interface of an ExampleGen that reads one source."""

    PARAMETERS = parameters(
        source=str, val_fraction=float, shards=int, code_fingerprint=str
    ) | parameters(optional=True, **{driver.RANGE: str})
    INPUTS = channels()
    OUTPUTS = channels(examples=standard_artifacts.Examples)


class SourceExampleGen(base_beam_component.BaseBeamComponent):
    """Reads one source, a path or ``sample``; its content is in the cache key."""

    DRIVER_CLASS = driver.Driver

    def __init__(self, source: Any, span: Any, **properties: Any) -> None:
        """Configures the source.

        Args:
            source: a path, ``sample``, or a runtime parameter.
            span: of a ``source`` with words such as ``{SPAN}``: ``latest``, a number, or a date.
            **properties: the other execution properties of the spec.

        Raises:
            UserError: no file system reads the path, or it has no such span.
        """
        if isinstance(source, str):  # a runtime parameter has no value yet
            files.check_scheme(source)
        super().__init__(
            self.SPEC_CLASS(
                source=source,
                code_fingerprint=code_fingerprint(self.EXECUTOR_SPEC.executor_class.__module__),
                examples=types.Channel(type=standard_artifacts.Examples),
                **driver.choice(span),
                **properties,
            )
        )


class Cifar10ExampleGenSpec(SourceSpec):
    """Interface of Cifar10ExampleGen."""

    PARAMETERS = SourceSpec.PARAMETERS | parameters(
        dataset=str, sample_train=int, sample_test=int, cache_dir=str
    )


class Cifar10ExampleGen(SourceExampleGen):
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
