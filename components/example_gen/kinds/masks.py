"""MaskExampleGen: pictures with masks, of a folder or a generated sample of drawn shapes."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from PIL import Image
from tfx.dsl.components.base import executor_spec

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import component, content, driver, executor, source, spans
from stagecraft.components.example_gen.archives import sample
from stagecraft.components.example_gen.archives.progress import Progress
from stagecraft.components.example_gen.kinds import folders, image_files
from stagecraft.components.example_gen.kinds.image_files import RefusedError, checked, opened, read
from stagecraft.components.interface import parameters
from stagecraft.schemas import features

_MASK_FORMATS = ("PNG", "BMP", "GIF")


@dataclasses.dataclass(frozen=True)
class Source(image_files.Source):
    """A folder of image files with masks."""

    path: str
    num_classes: int

    def names(self) -> Iterable[str]:
        """Pictures and masks."""
        return [name for pair in folders.pairs(self.path) for name in (*pair.images, *pair.masks)]

    def content(self, folder: str, progress: Progress) -> content.Content:
        """The files stay where they are."""
        found = folders.pairs(self.path)
        return MaskedFiles(self.path, tuple(p.name for p in found), found, self.num_classes)


@dataclasses.dataclass(frozen=True)
class MaskedFiles(image_files.Files):
    """Image files with masks."""

    pairs: tuple[folders.Pair, ...]
    num_classes: int

    def _example(self, index: int) -> bytes | content.Refused:
        pair = self.pairs[index]
        file = (*pair.images, *pair.masks)[0]
        try:
            for found, missing, folder in (
                (pair.images, "picture", folders.IMAGES),
                (pair.masks, "mask", folders.MASKS),
            ):
                if not found:
                    raise RefusedError(f"has no {missing} {folder}/{pair.name}.png; add it")
                if len(found) > 1:
                    file = found[1]
                    raise RefusedError(f"has the name of {found[0]}; rename one of them")
            file = pair.images[0]
            data, size = checked(posixpath.join(self.path, file))
            file = pair.masks[0]
            mask = _checked_mask(posixpath.join(self.path, file), size, self.num_classes)
        except RefusedError as problem:
            return content.Refused(posixpath.join(self.path, file), str(problem))
        return content.serialize(
            {
                features.ID: index,
                features.IMAGE: data,
                features.MASK: mask,
                features.FILE_NAME: pair.images[0].encode(),
            }
        )


def _checked_mask(path: str, size: tuple[int, int], num_classes: int) -> bytes:
    """A mask as a grey PNG of its classes: what an image viewer shows in a palette's colours."""
    with opened(io.BytesIO(read(path)), _MASK_FORMATS) as image:
        mode = image.mode
        classes = np.asarray(image)
    if classes.ndim != 2:
        use = "save the class of each pixel, as grey or with a palette"
        raise RefusedError(f"has the colours of {mode}; {use}")
    if classes.shape != size:
        shape = f"{classes.shape[0]} x {classes.shape[1]}"
        raise RefusedError(f"has {shape} pixels, but its picture has {size[0]} x {size[1]}")
    if classes.max() >= (classes_here := min(num_classes, 256)) or classes.min() < 0:
        most = int(classes.max())
        use = f"0 to {classes_here - 1}, or set task.args.num_classes (256 at most)"
        raise RefusedError(f"has pixels of the class {most}; use {use}")
    encoded = io.BytesIO()
    Image.fromarray(classes.astype(np.uint8)).save(encoded, "PNG")
    return encoded.getvalue()


@dataclasses.dataclass(frozen=True)
class Sample(content.Source):
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


def resolve(properties: Mapping[str, Any]) -> content.Source:
    """The folder, or the sample of the sizes in execution properties."""
    path = str(properties["source"])
    if path == source.SAMPLE:
        return Sample(int(properties["sample_train"]), int(properties["sample_test"]))
    both = f"{folders.IMAGES} and {folders.MASKS}"
    use = f"the path of a folder with the folders {both}, for pictures and their masks"
    path = source.existing(path, f"Use {use}.")
    if not folders.has_masks(path):
        problem = f"has no folders {both}"
        raise SettingError("data.source", path, problem, f"{use}, or data.example_gen")
    return Source(path, int(properties["num_classes"]))


class Driver(driver.Driver):
    """See the base class."""

    resolve = staticmethod(resolve)


class Executor(executor.Executor):
    """See the base class."""

    resolve = staticmethod(resolve)


class MaskExampleGenSpec(component.SourceSpec):
    """Interface of MaskExampleGen."""

    PARAMETERS = component.SourceSpec.PARAMETERS | parameters(
        sample_train=int, sample_test=int, num_classes=int, corrupt_images=str
    )


class MaskExampleGen(component.SourceExampleGen):
    """Reads ``FOLDER/images/NAME.jpg`` with ``FOLDER/masks/NAME.png``, or draws shapes.

    The output ``examples`` has the splits ``train``, ``val`` and ``eval``, as Cifar10ExampleGen
    writes them. Each example has the features ``image``, ``mask`` and ``id`` (int64).

    Of a folder, ``image`` has the bytes of the file (JPEG, PNG, BMP or GIF), ``mask`` those of a
    grey PNG with the class of each pixel, and ``file_name`` is ``images/NAME.jpg``. The files of
    masks are a PNG, BMP or GIF, grey or with a palette, whose colours do not matter. Of the sample,
    ``image`` and ``mask`` have 32 * 32 * 3 and 32 * 32 uint8 values in HWC order.
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
        num_classes: int = 2,
        corrupt_images: str = executor.REFUSE,
        span: Any = spans.LATEST,
    ) -> None:
        """Configures the source.

        Args:
          source: path of a folder with the folders ``images`` and ``masks``; or ``sample``.
          val_fraction: fraction of the sample's train part that is held out; of a folder, the
            fraction of the pictures in ``val``, and in ``eval``.
          shards: files per split.
          sample_train: pictures in the sample's train part.
          sample_test: pictures in the sample's test part.
          num_classes: of the pixels in a folder's masks.
          corrupt_images: ``refuse`` to fail if files cannot be decoded or are missing, with the
            names of all of them; ``skip`` to leave them out.
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
            sample_train=sample_train,
            sample_test=sample_test,
            num_classes=num_classes,
            corrupt_images=corrupt_images,
        )
