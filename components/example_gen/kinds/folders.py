"""Folders of image files: by class, FOLDER/CLASS/NAME.png, or with masks. Imports no TensorFlow.

With masks, a folder has ``images/NAME.jpg`` and, for each of them, ``masks/NAME.png``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import pathlib
import posixpath
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, NamedTuple

from google.protobuf import text_encoding
from PIL import Image

from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.text import visible
from stagecraft.components.example_gen import content, source
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.archives.progress import Progress
from stagecraft.components.example_gen.kinds import image_files
from stagecraft.components.example_gen.kinds.image_files import (
    FORMATS,
    ORIENTATION,
    RefusedError,
    checked,
    opened,
)
from stagecraft.schemas import features

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif")
IMAGES, MASKS = "images", "masks"

_FOREIGN = (".webp", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2")
"""Other pictures: listed, and then refused by their names."""

_ALPHA, _COLOURLESS = ("LA", "RGBA", "PA"), ("1", "L", "LA", "I", "I;16", "I;16B")
"""Modes of images with opacity, and without colours."""

_HEADERS = 100  # files whose headers the schema is made from

_log = logging.getLogger(__name__)


class Listing(NamedTuple):
    """The image files of a folder by class."""

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
    found: dict[str, list[str]] = {}
    others: list[str] = []
    with source.readable(folder):
        for subfolder in _visible(folder):
            if names := _images_in(folder, subfolder, others):
                found[subfolder] = names
    if len(found) == 1:
        raise UserError(
            f"{folder}: only the subfolder {next(iter(found))} has image files "
            f"({', '.join(SUFFIXES)}), so there is one class. Use a folder with a subfolder for "
            "each class.",
            file=folder,
        )
    names = sorted(name for of_class in found.values() for name in of_class)
    return Listing(tuple(sorted(found)), tuple(names), tuple(others))


class Pair(NamedTuple):
    """The files of one name: a picture and its mask, if nothing is missing or there twice."""

    name: str
    images: tuple[str, ...]
    masks: tuple[str, ...]


def pairs(folder: str) -> tuple[Pair, ...]:
    """The pictures of a folder with masks, sorted by name.

    Raises:
        UserError: there is no picture, or a name is not UTF-8.
    """
    with source.readable(folder):
        by_name: dict[str, tuple[list[str], list[str]]] = {}
        for place, subfolder in enumerate((IMAGES, MASKS)):
            for file in _images_in(folder, subfolder, []):
                stem = posixpath.splitext(posixpath.basename(file))[0]
                by_name.setdefault(stem, ([], []))[place].append(file)
    if not any(images for images, _ in by_name.values()):
        raise UserError(
            f"{folder}/{IMAGES}: has no image files ({', '.join(SUFFIXES)}). Use a folder with a "
            f"picture in {IMAGES} for each mask in {MASKS}.",
            file=folder,
        )
    return tuple(Pair(name, *map(tuple, by_name[name])) for name in sorted(by_name))


def _images_in(folder: str, subfolder: str, others: list[str]) -> list[str]:
    """``SUBFOLDER/NAME`` of the image files; adds further files to ``others``."""
    path = posixpath.join(folder, subfolder)
    found = []
    for name in _visible(path) if files.is_folder(path) else ():
        if not name.lower().endswith((*SUFFIXES, *_FOREIGN)):
            others.append(f"{subfolder}/{name}")
            continue
        if f"{subfolder}/{name}" != f"{subfolder}/{name}".encode(errors="replace").decode():
            name = f"{subfolder}/{name}"
            raise UserError(
                f"{folder}/{visible(name)}: the name is not UTF-8; rename the folder or the file",
                file=posixpath.join(folder, name),
                record=visible(name),
            )
        found.append(f"{subfolder}/{name}")
    return found


def _visible(folder: str) -> list[str]:
    return [name for name in files.names(folder) if not name.startswith(".")]


def is_by_class(path: str) -> bool:
    """Whether a path is a folder whose subfolders have image files."""
    if not files.is_folder(path):
        return False
    with source.readable(path):
        folders = (posixpath.join(path, name) for name in _visible(path))
        return any(
            name.lower().endswith((*SUFFIXES, *_FOREIGN))
            for folder in folders
            if files.is_folder(folder)
            for name in _visible(folder)
        )


def has_masks(path: str) -> bool:
    """Whether a path is a folder with pictures and their masks."""
    return all(files.is_folder(posixpath.join(path, name)) for name in (IMAGES, MASKS))


def write_schema(
    path: str,
    cache_dir: str,
    size: Sequence[int] | None = None,
    fit: str = "resize",
    *,
    masks: bool = False,
) -> str:
    """Writes the schema of a folder of image files, and returns its path.

    The label names are those of the subfolders. Up to ``_HEADERS`` files tell the channels: four if
    all have an opacity, one if none has colours, otherwise three; and the bits of a value: 16 if
    all have 16.

    Args:
        size: height and width that Transform gives all pictures; None: those of the files.
        fit: how, see ``stagecraft.trainer_module.decoding.FITS``.
        masks: whether the folder is one with masks.

    Raises:
        UserError: no file is a picture.
        SettingError: there is no ``size``, but the files have several sizes.
    """
    path = source.existing(path, "")
    classes: Sequence[str] = ()
    if masks:
        names: Sequence[str] = [name for pair in pairs(path) for name in pair.images]
    else:
        classes, names, _ = listing(path)
    headers = _headers(path, names)
    height, width = size or _common_size(headers)
    every = headers.values()
    channels = 4 if all(h.alpha for h in every) else 3 if any(h.colours for h in every) else 1
    tags = [f"image_shape={height}x{width}x{channels}"]
    tags += [f"image_fit={fit}"] if size else []
    tags += ["image_bits=16"] if all(h.bits == 16 for h in every) else []
    told = " ".join(f'tag: "{tag}"' for tag in tags)
    described = [
        (features.IMAGE, "BYTES", f"image_domain {{}}\n  annotation {{ {told} }}"),
        (features.MASK, "BYTES", "")
        if masks
        else (
            features.LABEL,
            "INT",
            f'int_domain {{ name: "label" min: 0 max: {len(classes) - 1} is_categorical: true }}',
        ),
        (features.ID, "INT", 'int_domain { name: "id" min: 0 }'),
        (features.FILE_NAME, "BYTES", ""),
    ]
    text = "".join(
        f'feature {{\n  name: "{name}"\n  type: {kind}\n'
        "  presence { min_fraction: 1.0 min_count: 1 }\n  shape {}\n"
        + (f"  {more}\n" if more else "")
        + "}\n"
        for name, kind, more in described
    )
    if classes:
        escaped = (text_encoding.CEscape(name, as_utf8=True) for name in classes)
        values = "".join(f'  value: "{name}"\n' for name in escaped)
        text += f'string_domain {{\n  name: "label_names"\n{values}}}\n'
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    schema = pathlib.Path(cache_dir).expanduser() / "schemas" / f"{digest}.pbtxt"
    if not schema.exists():
        schema.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=schema.parent, delete=False) as file:
            file.write(text)
        pathlib.Path(file.name).replace(schema)
    return str(schema)


class _Header(NamedTuple):
    size: tuple[int, int]  # height and width of the upright picture
    colours: bool
    alpha: bool
    bits: int


def _headers(folder: str, names: Sequence[str]) -> dict[str, _Header]:
    """The headers of some files, by name; without files that are no pictures."""
    found = {}
    for name in names[:: max(1, len(names) // _HEADERS)]:
        path = posixpath.join(folder, name)
        try:
            with files.open_binary(path) as stream, opened(stream, FORMATS) as image:
                found[name] = _header(image, stream)
        except (RefusedError, OSError):  # the ExampleGen names all of them
            continue
    if not found:
        raise UserError(
            f"{folder}: none of the files is a picture, such as {visible(names[0])}. Use files in "
            f"the formats {', '.join(FORMATS)}.",
            file=posixpath.join(folder, names[0]),
            suggestion=", ".join(FORMATS),
        )
    return found


def _header(image: Image.Image, stream: IO[bytes]) -> _Header:
    turned = image.format != "PNG" and image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
    size = (image.width, image.height) if turned else (image.height, image.width)
    bits = 16 if image.mode.startswith("I") else 8
    if image.format == "PNG":  # Pillow drops bits of colours
        stream.seek(24)
        bits = max(8, ord(stream.read(1)))
    return _Header(size, image.mode not in _COLOURLESS, image.mode in _ALPHA, bits)


def _common_size(headers: Mapping[str, _Header]) -> tuple[int, int]:
    examples = {header.size: name for name, header in headers.items()}
    if len(examples) > 1:
        (one, name), (other, other_name), *_ = sorted(examples.items())
        raise SettingError(
            "data.image_size",
            None,
            f"is not set, but the pictures have several sizes: {visible(name)} has "
            f"{one[0]} x {one[1]}, {visible(other_name)} {other[0]} x {other[1]}",
            f"data.image_size: [{one[0]}, {one[1]}], a height and width for all pictures",
        )
    return next(iter(examples))


@dataclasses.dataclass(frozen=True)
class Source(image_files.Source):
    """A folder of image files by class."""

    path: str

    def names(self) -> Iterable[str]:
        """Names of the files of all classes."""
        return listing(self.path).names

    def in_common(self) -> str:
        """The classes, whose positions are the labels."""
        return json.dumps(listing(self.path).classes)

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
        return ImageFiles(self.path, found.names, found.classes)


@dataclasses.dataclass(frozen=True)
class ImageFiles(image_files.Files):
    """Image files by class."""

    classes: tuple[str, ...]

    def _example(self, index: int) -> bytes | content.Refused:
        name = self.names[index]
        path = posixpath.join(self.path, name)
        try:
            data, _ = checked(path)
        except RefusedError as problem:
            return content.Refused(path, str(problem))
        return content.serialize(
            {
                features.ID: index,
                features.IMAGE: data,
                features.LABEL: self.classes.index(name.partition("/")[0]),
                features.FILE_NAME: name.encode(),
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
