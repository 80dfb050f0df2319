"""Folders of image files by class: FOLDER/CLASS/NAME.png. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import logging
import pathlib
import posixpath
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

import numpy as np
from google.protobuf import text_encoding
from PIL import Image

from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.text import visible
from stagecraft.components.example_gen import content, source, splits
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.archives.archive import Progress
from stagecraft.schemas import features

SUFFIXES = (".png", ".jpg", ".jpeg")
_FORMATS = ("PNG", "JPEG")
_CHANNELS = {"1": 1, "L": 1, "I": 1, "I;16": 1, "LA": 4, "RGBA": 4, "PA": 4}
"""Mode of an image -> channels; all others have 3."""

_log = logging.getLogger(__name__)


class Listing(NamedTuple):
    """The image files of a folder."""

    classes: tuple[str, ...]
    """Names of the subfolders with image files, sorted: the labels."""

    names: tuple[str, ...]
    """``CLASS/NAME`` of each file, sorted: the ids."""

    others: tuple[str, ...]
    """Files in the subfolders that are no image files."""


def listing(folder: str) -> Listing:
    """The image files in the subfolders of a folder. Names that begin with a dot do not count.

    Raises:
        UserError: only one subfolder has image files, or a name is not UTF-8.
    """
    with source.readable(folder):
        found: dict[str, list[str]] = {}
        others = []
        for subfolder in _visible(folder):
            path = posixpath.join(folder, subfolder)
            for name in _visible(path) if files.is_folder(path) else ():
                if name.lower().endswith(SUFFIXES):
                    found.setdefault(subfolder, []).append(f"{subfolder}/{name}")
                else:
                    others.append(f"{subfolder}/{name}")
    if len(found) == 1:
        raise UserError(
            f"{folder}: only the subfolder {next(iter(found))} has image files "
            f"({', '.join(SUFFIXES)}), so there is one class. Use a folder with a subfolder for "
            "each class.",
            file=folder,
        )
    for name in (name for of_class in found.values() for name in of_class):
        if name != name.encode(errors="replace").decode():
            raise UserError(
                f"{folder}/{visible(name)}: the name is not UTF-8; rename the folder or the file",
                file=posixpath.join(folder, name),
                record=visible(name),
            )
    names = sorted(name for of_class in found.values() for name in of_class)
    return Listing(tuple(sorted(found)), tuple(names), tuple(others))


def _visible(folder: str) -> list[str]:
    return [name for name in files.names(folder) if not name.startswith(".")]


def is_by_class(path: str) -> bool:
    """Whether a path is a folder whose subfolders have image files."""
    if not files.is_folder(path):
        return False
    with source.readable(path):
        folders = (posixpath.join(path, name) for name in _visible(path))
        return any(
            name.lower().endswith(SUFFIXES)
            for folder in folders
            if files.is_folder(folder)
            for name in _visible(folder)
        )


def write_schema(path: str, cache_dir: str) -> str:
    """Writes the schema of a folder of image files, and returns its path.

    The label names are those of the subfolders; the shape is that of the first image.
    """
    path = source.existing(path, "")
    found = listing(path)
    height, width, channels = _shape(posixpath.join(path, found.names[0]))
    escaped = (text_encoding.CEscape(name, as_utf8=True) for name in found.classes)
    names = "\n".join(f'  value: "{name}"' for name in escaped)
    one_value = "  presence { min_fraction: 1.0 min_count: 1 }\n  shape {}"
    text = f"""feature {{
  name: "{features.IMAGE}"
  type: BYTES
{one_value}
  image_domain {{}}
  annotation {{ tag: "image_shape={height}x{width}x{channels}" }}
}}
feature {{
  name: "{features.LABEL}"
  type: INT
{one_value}
  int_domain {{ name: "label" min: 0 max: {len(found.classes) - 1} is_categorical: true }}
}}
feature {{
  name: "{features.ID}"
  type: INT
{one_value}
  int_domain {{ name: "id" min: 0 }}
}}
string_domain {{
  name: "label_names"
{names}
}}
"""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    schema = pathlib.Path(cache_dir).expanduser() / "schemas" / f"{digest}.pbtxt"
    if not schema.exists():
        schema.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=schema.parent, delete=False) as file:
            file.write(text)
        pathlib.Path(file.name).replace(schema)
    return str(schema)


def _shape(path: str) -> tuple[int, int, int]:
    """Height, width and channels of an image file, from its header."""
    with files.open_binary(path) as stream, _opened(io.BytesIO(stream.read()), path) as image:
        return image.height, image.width, _CHANNELS.get(image.mode, 3)


@contextmanager
def _opened(data: IO[bytes], path: str) -> Iterator[Image.Image]:
    """An image without its pixels. An error about it names the file."""
    try:
        with Image.open(data, formats=_FORMATS) as image:
            yield image
    except Image.DecompressionBombError:
        raise _refused(path, "has more pixels than Pillow opens") from None
    except (OSError, SyntaxError):
        raise _refused(path, "is not a PNG or JPEG, or is damaged") from None


def _refused(path: str, problem: str) -> UserError:
    return UserError(f"{path}: {problem}. Replace the file, or remove it.", file=path)


@dataclasses.dataclass(frozen=True)
class Source(content.Source):
    """A folder of image files by class."""

    path: str

    def fingerprint(self) -> str:
        """SHA-256 of names and bytes."""
        with source.readable(self.path):
            return source.sha256_of(self.path, listing(self.path).names)

    def content(self, folder: str, progress: Progress) -> content.Content:
        """The files stay where they are."""
        found = listing(self.path)
        if found.others:
            _log.warning(
                "%s: ignoring %d files that do not end in %s, such as %s",
                self.path,
                len(found.others),
                ", ".join(SUFFIXES),
                found.others[0],
            )
        return ImageFiles(self.path, found.classes, found.names)


@dataclasses.dataclass(frozen=True)
class ImageFiles(content.Content):
    """Image files, each an example; ids are positions in the sorted names."""

    path: str
    classes: tuple[str, ...]
    names: tuple[str, ...]

    def split_ids(self, val_fraction: float) -> dict[str, splits.Ids]:
        """By a hash of the name, so that a file stays in its split when others come.

        ``val`` and ``eval`` have about ``val_fraction`` of the files each.
        """
        digests = (hashlib.sha256(name.encode()).digest()[:8] for name in self.names)
        places = np.array([int.from_bytes(each, "big") / 2**64 for each in digests])
        parts = np.digitize(places, [val_fraction, 2 * val_fraction])
        order = {features.VAL: 0, features.EVAL: 1, features.TRAIN: 2}
        ids = {split: np.flatnonzero(parts == order[split]) for split in splits.SPLITS}
        for split, of_split in ids.items():
            if not len(of_split):
                raise SettingError(
                    "val_fraction",
                    val_fraction,
                    f"of {len(self.names):,} image files leaves none for {split}",
                    "more files, or another fraction",
                )
        return ids

    def examples(self, ids: splits.Ids) -> Iterator[bytes]:
        """Reads each file.

        Raises:
            UserError: a file is no image, or a damaged PNG.
        """
        labels = {name: label for label, name in enumerate(self.classes)}
        for index in ids.tolist():
            name = self.names[index]
            path = posixpath.join(self.path, name)
            with files.open_binary(path) as stream:
                data = stream.read()
            with _opened(io.BytesIO(data), path) as image:
                image.verify()  # the checksums of a PNG; a JPEG has none
            yield content.serialize(
                {
                    features.ID: index,
                    features.IMAGE: data,
                    features.LABEL: labels[name.partition("/")[0]],
                }
            )


def resolve(properties: Mapping[str, Any]) -> Source:
    """Finds the folder in execution properties."""
    path = source.existing(
        str(properties["source"]), "Use the path of a folder with a subfolder for each class."
    )
    if not is_by_class(path):
        raise UserError(
            f"{path} has no subfolder with image files ({', '.join(SUFFIXES)}). Use a folder with "
            "a subfolder for each class.",
            setting="source",
            value=path,
            file=path,
        )
    return Source(path)
