"""MaskExampleGen: the generated sample of drawn shapes, each with the pixels of its shape."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import content, driver, executor, source
from stagecraft.components.example_gen.archives import sample
from stagecraft.components.example_gen.archives.archive import Progress
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.schemas import features


@dataclasses.dataclass(frozen=True)
class Source(content.Source):
    """The generated sample."""

    train: int
    test: int
    path: str = source.SAMPLE

    def fingerprint(self) -> str:
        """SHA-256 of the sizes; the code is in the cache key anyway."""
        return hashlib.sha256(f"masks {self.train} {self.test}".encode()).hexdigest()

    def content(self, folder: str, progress: Progress) -> content.Content:
        """Stages the drawings."""
        return content.stage(self._examples(), folder, self.test)

    def _examples(self) -> Iterator[bytes]:
        index = 0
        for block, masks in sample.drawings(self.train, self.test):
            pictures = block.planes.reshape(-1, 3, sample.SIDE, sample.SIDE).transpose(0, 2, 3, 1)
            for picture, mask in zip(np.ascontiguousarray(pictures), masks, strict=True):
                yield content.serialize(
                    {
                        features.ID: index,
                        features.IMAGE: picture.tobytes(),
                        features.MASK: mask.tobytes(),
                    }
                )
                index += 1


def resolve(properties: Mapping[str, Any]) -> Source:
    """The sample of the sizes in execution properties."""
    path = str(properties["source"])
    if path != source.SAMPLE:
        problem = "cannot be read by MaskExampleGen, which only makes a sample"
        use = f"{source.SAMPLE}, or data.example_gen for masks of your own"
        raise SettingError("data.source", path, problem, use)
    return Source(int(properties["sample_train"]), int(properties["sample_test"]))


class Driver(driver.Driver):
    """See the base class."""

    resolve = staticmethod(resolve)


class Executor(executor.Executor):
    """See the base class."""

    resolve = staticmethod(resolve)


class MaskExampleGenSpec(types.ComponentSpec):
    """Interface of MaskExampleGen."""

    PARAMETERS = {
        "source": ExecutionParameter(type=str),
        "val_fraction": ExecutionParameter(type=float),
        "shards": ExecutionParameter(type=int),
        "sample_train": ExecutionParameter(type=int),
        "sample_test": ExecutionParameter(type=int),
        "code_fingerprint": ExecutionParameter(type=str),
    }
    INPUTS: dict[str, ChannelParameter] = {}
    OUTPUTS = {"examples": ChannelParameter(type=standard_artifacts.Examples)}


class MaskExampleGen(base_beam_component.BaseBeamComponent):
    """Draws shapes, and the mask of each.

    The output ``examples`` has the splits ``train``, ``val`` and ``eval``, as Cifar10ExampleGen
    writes them. Each example has the features ``image`` (bytes, 32 * 32 * 3 uint8 values in HWC
    order), ``mask`` (bytes, 32 * 32 uint8 values: the class of each pixel) and ``id`` (int64).
    """

    SPEC_CLASS = MaskExampleGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        source: str = source.SAMPLE,
        val_fraction: float = 0.1,
        shards: int = 48,
        sample_train: int = 5_000,
        sample_test: int = 1_000,
    ) -> None:
        """Configures the sample.

        Args:
          source: ``sample``; nothing else.
          val_fraction: fraction of the train part that is held out.
          shards: files per split.
          sample_train: pictures in the train part.
          sample_test: pictures in the test part.

        Raises:
          SettingError: an argument is invalid.
        """
        properties = {"source": source, "sample_train": sample_train, "sample_test": sample_test}
        if isinstance(source, str):  # a runtime parameter has no value yet
            resolve(properties)
        super().__init__(
            MaskExampleGenSpec(
                val_fraction=val_fraction,
                shards=shards,
                code_fingerprint=code_fingerprint(__name__),
                examples=types.Channel(type=standard_artifacts.Examples),
                **properties,
            )
        )
