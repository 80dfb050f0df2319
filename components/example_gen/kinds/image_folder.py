"""ImageFolderExampleGen: image files in a folder for each class, as tf.Examples in shards."""

from __future__ import annotations

from typing import Any

from tfx.dsl.components.base import executor_spec

from stagecraft.components.example_gen import component, driver, executor, spans
from stagecraft.components.example_gen.kinds import folders
from stagecraft.components.interface import parameters


class Driver(driver.Driver):
    """See the base class."""

    resolve = staticmethod(folders.resolve)


class Executor(executor.Executor):
    """See the base class."""

    resolve = staticmethod(folders.resolve)


class ImageFolderExampleGenSpec(component.SourceSpec):
    """Interface of ImageFolderExampleGen."""

    PARAMETERS = component.SourceSpec.PARAMETERS | parameters(corrupt_images=str)


class ImageFolderExampleGen(component.SourceExampleGen):
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
        executor.check_corrupt_images(corrupt_images)
        super().__init__(
            source,
            span,
            val_fraction=val_fraction,
            shards=shards,
            corrupt_images=corrupt_images,
        )
