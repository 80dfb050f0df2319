"""Manifests of artifacts: name, size, record count and digest of each file.

Whoever publishes an artifact describes its files (:func:`add`). Whoever uses the artifact compares
them (:func:`check`). So a file that was lost, emptied, cut or changed in between has a name, and
no step works on what is left.

A manifest is the artifact's custom property ``manifest``: JSON, file -> ``[size, SHA-256,
records]``. A long one is the file ``.manifest.json`` in the artifact's folder, and the property has
the SHA-256 of that file: TFX logs all properties, and Kubeflow passes them as arguments. The same
files have the same manifest. An artifact without a manifest, of another program or an earlier
release, passes, unless its main file is empty.
"""

from __future__ import annotations

import concurrent.futures
import gzip
import hashlib
import io
import itertools
import json
import mmap
import os
import posixpath
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from stagecraft.common.errors import UserError
from stagecraft.components.fingerprints.code_fingerprint import file_digest
from stagecraft.components.object_store import filesystem

if TYPE_CHECKING:
    from ml_metadata.proto import metadata_store_pb2
    from tfx import types

PROPERTY = "manifest"
"""Custom property of an artifact."""

FILE = ".manifest.json"
"""A long manifest, in the artifact's folder."""

_EXAMPLES = "Examples"
"""The type of artifacts whose files hold records."""

_SHORT = 4_000
"""Characters of a property at most."""

_MAIN = ("saved_model.pb", "variables.index", "FeatureStats.pb", "SchemaDiff.pb", "schema.pbtxt")
"""Names of files that are never empty: of models, Transform graphs, statistics, schemas."""

_READ_AGAIN, _READ_REMOTE = 1 << 30, 1 << 26
"""Bytes of an artifact, on a disk and in an object store, up to which a check reads all files."""

_FRAME = 8 + 4 + 4
"""Bytes around each record of a TFRecord: length, and two checksums
(``tensorflow/core/lib/io/record_writer.h``)."""

_LENGTH = struct.Struct("<Q")
_PIECE = 1 << 20  # bytes
_REQUESTS = 8  # at once, to an object store


_T = TypeVar("_T")


class File(NamedTuple):
    """A file of an artifact."""

    size: int  # bytes
    sha256: str = ""  # 64 hexadecimal digits; empty: not computed
    records: int | None = None  # of a TFRecord

    def __str__(self) -> str:
        size = f"{self.size:,} bytes"
        return size if self.records is None else f"{size} with {self.records:,} records"


Manifest = Mapping[str, File]
"""Files by their paths below the artifact's URI, with slashes; empty path: the URI is the file."""


class Damage(NamedTuple):
    """A file that differs from the manifest."""

    name: str
    expected: File | None  # None: the artifact has no such file
    found: File | None  # None: the file is missing

    def path(self, uri: str) -> str:
        """The path of the file in the artifact at ``uri``."""
        return posixpath.join(uri, self.name) if self.name else uri

    def __str__(self) -> str:
        if self.name == FILE:
            return "is missing or damaged; it is the list of the artifact's files"
        if self.found == self.expected:
            return "is empty"
        if self.found is None:
            return f"is missing; expected {self.expected}"
        if self.expected is None:
            return "was added after the step that made the artifact"
        if (found := str(self.found)) != str(self.expected):
            return f"has {found}; expected {self.expected}"
        return (
            f"has changed bytes (SHA-256 {self.found.sha256[:12]}…; expected "
            f"{self.expected.sha256[:12]}…)"
        )


class DamagedArtifactError(UserError):
    """An artifact whose files are not those that its step made."""

    def __init__(
        self, uri: str, kind: str, damages: Sequence[Damage], remedy: str, suggestion: str = ""
    ):
        """Names the first damaged file, and the number of the others.

        Args:
            uri: of the artifact.
            kind: its type, such as ``Examples``.
            damages: at least one.
            remedy: a sentence: how to get a whole artifact.
            suggestion: options of the command line that do so, such as ``--from Transform``.
        """
        first, *others = damages
        path = first.path(uri)
        more = f" {len(others)} more of its files differ, too." if others else ""
        super().__init__(
            f"{path}: {first}. The artifact {uri} ({kind}) is damaged.{more} {remedy}",
            file=path,
            record=first.name,
            suggestion=suggestion,
        )
        self.uri, self.kind, self.damages = uri, kind, tuple(damages)


Remedy = Callable[["types.Artifact"], tuple[str, str]]
"""From a damaged artifact to ``remedy`` and ``suggestion`` of the error."""


def _make_again(artifact: types.Artifact) -> tuple[str, str]:
    del artifact
    return "Run the step that made it again.", ""


def check(
    artifacts: Mapping[str, Sequence[types.Artifact]],
    remedy: Remedy = _make_again,
    *,
    thorough: bool = False,
) -> None:
    """Compares the files of artifacts with their manifests.

    Each size is compared. The digests are compared, too, except in a large artifact: of more than
    1 GiB on a disk, the files that did not change after its publication; of more than 64 MiB in
    an object store, all. A process reads a local file again only if its size, times or inode
    differ from those at the last reading.

    Args:
        artifacts: by input key.
        remedy: gives the advice of the error.
        thorough: compares all digests, whatever the size.

    Raises:
        DamagedArtifactError: as said.
    """
    for artifact in itertools.chain(*artifacts.values()):
        if damages := damages_of(artifact, thorough=thorough):
            raise DamagedArtifactError(artifact.uri, artifact.type_name, damages, *remedy(artifact))


def damages_of(artifact: types.Artifact, *, thorough: bool = False) -> list[Damage]:
    """The damaged files of an artifact; see :func:`check`.

    Without a manifest, these are the main files without content. TensorFlow, TFDV and TFX do not
    name such a file in their errors, or take it for a graph or statistics of nothing.
    """
    text = artifact.get_string_custom_property(PROPERTY)
    published = artifact.mlmd_artifact.create_time_since_epoch
    if not text:
        empty = (name for name, path in paths_of(artifact.uri) if _is_hollow(path))
        return [Damage(name, File(0), File(0)) for name in sorted(empty)]
    return compare(artifact.uri, text, artifact.type_name, published=published, thorough=thorough)


def add(artifact: metadata_store_pb2.Artifact, kind: str) -> None:
    """Describes the files of an artifact in its custom property.

    If the artifact has a manifest, of the executor that wrote the files, compares them with it.
    Outputs that a user placed outside the pipeline root are not described: they may change.

    Args:
        artifact: ``mlmd_artifact`` of a :class:`tfx.types.Artifact`; changes.
        kind: its type, such as ``Examples``.

    Raises:
        DamagedArtifactError: the files changed after the executor described them; or a split of
            Examples has not as many records as the ExampleGen counted (``count_SPLIT``).
    """
    if "is_external" in artifact.custom_properties:  # TFX's mark of a user's folder
        return
    if PROPERTY in artifact.custom_properties:
        text = artifact.custom_properties[PROPERTY].string_value
        found = compare(artifact.uri, text, kind)
    else:
        files = describe(artifact.uri, kind)
        found = _miscounted(files, artifact) if kind == _EXAMPLES else []
        artifact.custom_properties[PROPERTY].string_value = store(artifact.uri, files)
    if found:
        raise DamagedArtifactError(artifact.uri, kind, found, "Run the step again.")


def describe(uri: str, kind: str = "") -> dict[str, File]:
    """The files of an artifact.

    Args:
        uri: a folder or a file: a path, or an address of an object store. In a store, more than
            64 MiB get no digests.
        kind: the artifact's type. Records are counted in ``Examples`` on a disk.
    """
    paths, remote = dict(paths_of(uri)), "://" in uri
    found = {name: File(_size_and_time(path)[0]) for name, path in paths.items()}
    if remote and _total(found) > _READ_REMOTE:
        return found

    def read(name: str) -> File:
        counts = kind == _EXAMPLES and not remote
        count, whole = _records(paths[name]) if counts else (0, False)
        return File(found[name].size, file_digest(paths[name]), count if whole else None)

    return dict(zip(paths, _mapped(read, paths, remote=remote), strict=True))


def of_bytes(content: bytes) -> File:
    """A file with this content."""
    return File(len(content), hashlib.sha256(content).hexdigest())


def text_of(files: Manifest) -> str:
    """A manifest as :func:`compare` reads it."""
    return json.dumps({name: [*each] for name, each in sorted(files.items())})


def store(uri: str, files: Manifest) -> str:
    """The custom property for these files; writes a long manifest into the artifact's folder."""
    text = text_of(files)
    if len(text) <= _SHORT:
        return text
    content = text.encode()
    filesystem.write_atomically(posixpath.join(uri, FILE), content)
    return hashlib.sha256(content).hexdigest()


def compare(
    uri: str, text: str, kind: str = "", *, published: int = 0, thorough: bool = False
) -> list[Damage]:
    """The files at a URI that differ from a manifest, as :func:`check` compares them.

    Args:
        text: the custom property.
        kind: the artifact's type. Examples must not have further files.
        published: when the artifact was published, in milliseconds since 1970; 0: unknown.
    """
    if not text.startswith("{"):
        content = filesystem.read(posixpath.join(uri, FILE))
        if content is None or hashlib.sha256(content).hexdigest() != text:
            found = None if content is None else File(len(content))
            return [Damage(FILE, File(0, text), found)]
        text = content.decode()
    expected = {name: File(*values[:3]) for name, values in json.loads(text).items()}
    paths = dict(paths_of(uri))
    limit = _READ_REMOTE if "://" in uri else _READ_AGAIN
    reads = thorough or _total(expected) <= limit

    def differing(name: str) -> Damage | None:
        wanted, path = expected[name], paths.get(name)
        if path is None:
            return Damage(name, wanted, None)
        (size, changed), remote = _size_and_time(path), "://" in path
        if size == wanted.size:
            skips = not reads and (remote or changed <= published * 10**6)
            if not wanted.sha256 or skips or file_digest(path) == wanted.sha256:
                return None
        records = None if wanted.records is None or remote else _records(path)[0]
        return Damage(name, wanted, File(size, file_digest(path), records))

    compared = _mapped(differing, sorted(expected), remote="://" in uri)
    damages = [each for each in compared if each]
    if kind == _EXAMPLES:
        damages += [
            Damage(name, None, File(_size_and_time(paths[name])[0]))
            for name in sorted(paths.keys() - expected)
            # No reader matches other files.
            if name.startswith("Split-") and not posixpath.basename(name).startswith(".")
        ]
    return damages


def _mapped(function: Callable[[str], _T], names: Iterable[str], *, remote: bool) -> list[_T]:
    """The results for all names, in threads: digests leave Python's lock to the others."""
    threads = _REQUESTS if remote else os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, names))


def _miscounted(files: Manifest, artifact: metadata_store_pb2.Artifact) -> list[Damage]:
    """The splits that have not the number of records that the ExampleGen counted."""
    damages = []
    if "split_names" not in artifact.properties:
        return []
    for split in json.loads(artifact.properties["split_names"].string_value or "[]"):
        own = [each for name, each in files.items() if name.startswith(f"Split-{split}/")]
        counts = [each.records for each in own if each.records is not None]
        if f"count_{split}" not in artifact.custom_properties or len(counts) < len(own):
            continue
        expected = artifact.custom_properties[f"count_{split}"].int_value
        if sum(counts) != expected:
            found = File(sum(each.size for each in own), "", sum(counts))
            damages.append(Damage(f"Split-{split}", found._replace(records=expected), found))
    return damages


def paths_of(uri: str) -> Iterator[tuple[str, str]]:
    """Yields the name and the path of each file of an artifact, without its manifest."""
    fileio = _fileio()
    if not fileio.isdir(uri):
        if fileio.exists(uri):
            yield "", uri
        return
    for parent, _, names in fileio.walk(uri):
        below = str(parent)[len(uri) :].strip("/")
        for name in names:
            if below or name != FILE:
                yield posixpath.join(below, name), posixpath.join(str(parent), name)


def _is_hollow(path: str) -> bool:
    return posixpath.basename(path) in _MAIN and _size_and_time(path)[0] == 0


def _size_and_time(path: str) -> tuple[int, int]:
    """Bytes, and nanoseconds since 1970 of the last change."""
    if "://" in path:
        found = _fileio().stat(path)
        return int(found.length), int(found.mtime_nsec)
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _total(files: Manifest) -> int:
    return sum(each.size for each in files.values())


def _records(path: str) -> tuple[int, bool]:
    """The number of whole records of a local TFRecord, and whether it consists of these alone."""
    try:
        if path.endswith(".gz"):
            with gzip.open(path) as stream:
                return _records_of(io.BufferedReader(stream, _PIECE))
        size = os.path.getsize(path)
        if not size:
            return 0, True
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            count, place = 0, 0
            while place + _FRAME <= size:
                place += _LENGTH.unpack_from(data, place)[0] + _FRAME
                count += place <= size
            return count, place == size
    except (OSError, EOFError, zlib.error):  # gzip raises these for a damaged file
        return 0, False


def _records_of(stream: IO[bytes]) -> tuple[int, bool]:
    count = 0
    try:
        while header := stream.read(12):
            left = _LENGTH.unpack_from(header)[0] + 4
            while left:
                if not (piece := stream.read(min(left, _PIECE))):
                    return count, False
                left -= len(piece)
            count += 1
    except (OSError, EOFError, zlib.error, struct.error):
        return count, False
    return count, True


def _fileio() -> Any:
    from tfx.dsl.io import fileio  # imports TensorFlow

    return fileio
