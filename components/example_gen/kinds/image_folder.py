"""ImageFolderExampleGen: image files in a folder for each class, as tf.Examples in shards."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from stagecraft.components.example_gen import driver, executor, spans
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.kinds import folders
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint


class Driver(driver.Driver):
    """See the base class."""

    resolve = staticmethod(folders.resolve)


class Executor(executor.Executor):
    """See the base class."""

    resolve = staticmethod(folders.resolve)


class ImageFolderExampleGenSpec(types.ComponentSpec):
    """Interface of ImageFolderExampleGen."""

    PARAMETERS = {
        "source": ExecutionParameter(type=str),
        "val_fraction": ExecutionParameter(type=float),
        "shards": ExecutionParameter(type=int),
        "corrupt_images": ExecutionParameter(type=str),
        "code_fingerprint": ExecutionParameter(type=str),
        driver.RANGE: ExecutionParameter(type=str, optional=True),
    }
    INPUTS: dict[str, ChannelParameter] = {}
    OUTPUTS = {"examples": ChannelParameter(type=standard_artifacts.Examples)}


class ImageFolderExampleGen(base_beam_component.BaseBeamComponent):
    """Reads ``FOLDER/CLASS/NAME.png`` (or JPEG, BMP, GIF); the images stay encoded.

    The output ``examples`` has the splits ``train``, ``val`` and ``eval``, as Cifar10ExampleGen
    writes them. Each example has the features ``image`` (bytes, the file), ``label`` (int64, the
    position among the sorted names of the classes), ``id`` (int64) and ``file_name`` (bytes,
    ``CLASS/NAME``). A hash of ``CLASS/NAME`` chooses the split. If files were skipped, the
    artifact's custom property ``count_skipped`` is their number.
    """

    SPEC_CLASS = ImageFolderExampleGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        source: str,
        val_fraction: float = 0.1,
        shards: int = 48,
        corrupt_images: str = executor.REFUSE,
        span: Any = spans.LATEST,
    ) -> None:
        """Configures the source.

        Args:
          source: path of a folder with a subfolder for each class.
          val_fraction: fraction of the files in ``val``, and in ``eval``.
          shards: files per split.
          corrupt_images: ``refuse`` to fail if files cannot be decoded, with the names of all of
            them; ``skip`` to leave them out.
          span: of a ``source`` with words such as ``{SPAN}``: ``latest``, a number, or a date.

        Raises:
          UserError: no file system reads the path, or an argument is invalid.
        """
        if isinstance(source, str):  # a runtime parameter has no value yet
            files.check_scheme(source)
        executor.check_corrupt_images(corrupt_images)
        super().__init__(
            ImageFolderExampleGenSpec(
                source=source,
                val_fraction=val_fraction,
                shards=shards,
                corrupt_images=corrupt_images,
                code_fingerprint=code_fingerprint(__name__),
                examples=types.Channel(type=standard_artifacts.Examples),
                **driver.choice(span),
            )
        )
