"""TextExampleGen: cuts text into windows of one length, as tf.Examples in shards."""

from __future__ import annotations

import codecs
import dataclasses
import hashlib
import itertools
import os
import posixpath
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfx.dsl.components.base import executor_spec

from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.text import plain
from stagecraft.components.example_gen import component, content, driver, executor, source, spans
from stagecraft.components.example_gen.archives import files
from stagecraft.components.example_gen.archives.progress import Progress
from stagecraft.components.interface import parameters
from stagecraft.schemas import features

SUFFIX = ".txt"

_BLOCK = 1 << 16
"""Bytes that are read at once."""

_LONGEST_WORD = 1 << 20


@dataclasses.dataclass(frozen=True)
class Source(content.Source):
    """Text files, or generated sentences."""

    path: str
    names: tuple[str, ...]  # of the folder's text files, sorted; none: generated
    train: int
    test: int
    window: int  # tokens of an example
    unit: str

    def fingerprint(self) -> str:
        """SHA-256 of names and bytes; of the sample: of its sizes."""
        if not self.names:
            return hashlib.sha256(f"sentences {self.train} {self.test}".encode()).hexdigest()
        with source.readable(self.path):
            return source.sha256_of(self.path, self.names)

    def content(self, folder: str, progress: Progress) -> content.Content:
        """Stages the windows."""
        lines = (f"{line}\n" for line in sentences())
        texts = map(self._read, self.names) if self.names else [lines]
        windows: Iterator[str] = itertools.chain.from_iterable(
            _windows(text, self.window, self.unit) for text in texts
        )
        if not self.names:
            windows = itertools.islice(windows, self.train + self.test)
        examples = (
            content.serialize({features.ID: index, features.TEXT: window.encode()})
            for index, window in enumerate(windows)
        )
        return content.stage(examples, folder, 0 if self.names else self.test)

    def _read(self, name: str) -> Iterator[str]:
        """The text of a file in pieces, which may end within a line or a word."""
        path = posixpath.join(self.path, name)
        decoder, number = codecs.getincrementaldecoder("utf-8")(), 1
        with source.readable(path), files.open_binary(path) as stream:
            block = b"more"
            while block:
                block = stream.read(_BLOCK)
                try:
                    yield decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    number += error.object[: error.start].count(b"\n")
                    raise UserError(
                        f"{path}, line {number}: is not UTF-8 ({error.reason}); convert the file "
                        "to UTF-8",
                        file=path,
                        record=str(number),
                    ) from None
                number += block.count(b"\n")


def _windows(pieces: Iterable[str], window: int, unit: str) -> Iterator[str]:
    """Windows of ``window`` tokens, each beginning with the last token of the one before.

    So each token but a text's first is a target once. The rest of a text is dropped. Any white
    space counts as one space. Takes the memory of a piece, a window and a word.
    """
    tokens: Any = [] if unit == "words" else ""
    for more in _words(pieces) if unit == "words" else _characters(pieces):
        tokens = tokens + more
        starts = range(0, len(tokens) - window + 1, window - 1)
        for start in starts:
            yield features.SEPARATORS[unit].join(tokens[start : start + window])
        tokens = tokens[len(starts) * (window - 1) :]


def _words(pieces: Iterable[str]) -> Iterator[list[str]]:
    """The words of each piece; the last one may end in the next piece.

    Raises:
        UserError: a word is longer than a piece may be.
    """
    rest = ""
    for piece in itertools.chain(pieces, [" "]):
        *words, rest = [*(rest + piece).split(), *([""] if piece[-1:].isspace() else [])] or [""]
        if len(rest) > _LONGEST_WORD:
            raise UserError(
                f"the text has a word of more than {_LONGEST_WORD:,} characters, which begins with "
                f"{plain(rest[:40])!r}; use task.args.unit: characters",
                setting="unit",
                value="words",
                suggestion="characters",
                record=rest[:40],
            )
        yield words


def _characters(pieces: Iterable[str]) -> Iterator[str]:
    """The characters of each piece, with a space after each word."""
    is_open = False  # the last word may go on
    for piece in itertools.chain(pieces, [" "]):
        if not piece:
            continue
        words = piece.split()
        before = " " if is_open and piece[0].isspace() else ""
        is_open = bool(words) and not piece[-1].isspace()
        yield before + " ".join(words) + (" " if words and not is_open else "")


def resolve(properties: Mapping[str, Any]) -> Source:
    """Finds the text in execution properties."""
    path, names = str(properties["source"]), tuple[str, ...]()
    if path != source.SAMPLE:
        advice = f"Use the path of a text file or of a folder of {SUFFIX} files, or 'sample'."
        path = source.existing(path, advice)
        path, names = _text_files(path)
    return Source(
        path,
        names,
        train=int(properties["sample_train"]),
        test=int(properties["sample_test"]),
        window=int(properties["window"]),
        unit=str(properties["unit"]),
    )


def _text_files(path: str) -> tuple[str, tuple[str, ...]]:
    """Folder and names of the text files at a path."""
    if not files.is_folder(path):
        folder, name = os.path.split(path)
        return folder, (name,)
    names = tuple(name for name in files.names(path) if name.endswith(SUFFIX))
    if not names:
        raise UserError(
            f"{path}: the folder has no {SUFFIX} file", file=path, setting="source", value=path
        )
    return path, names


_NAMES = {"she": ("anna", "mira", "lena"), "he": ("otto", "paul", "emil")}
_NOUNS = ("cat", "dog", "bird", "horse", "child", "king", "ship", "tree")
_ADJECTIVES = ("small", "old", "red", "quiet", "young", "tired")
_PLACES = ("near the river", "in the house", "under the bridge", "behind the hill")
_VERBS = ("sees", "likes", "follows", "finds", "knows", "waits for")
_SEED = 11


def sentences(seed: int = _SEED) -> Iterator[str]:
    """Yields sentences of a small grammar without end; the same seed gives the same sentences.

    Subject and verb agree in number across the words between them, quotes close, and a pronoun has
    the gender of the name before it. So there is something to learn at each distance.
    """
    draw = random.Random(seed)
    while True:
        yield f"{draw.choice((_plain, _told, _named))(draw)}."


def _plural(noun: str) -> str:
    return {"child": "children"}.get(noun, f"{noun}s")


def _phrase(draw: random.Random) -> tuple[str, bool]:
    """A noun with its attributes, and whether it is plural."""
    many, noun = draw.random() < 0.5, draw.choice(_NOUNS)
    words = ["the", *draw.sample(_ADJECTIVES, draw.choice((0, 0, 1, 2)))]
    words.append(_plural(noun) if many else noun)
    if draw.random() < 0.3:
        words.append(draw.choice(_PLACES))
    return " ".join(words), many


def _verb(draw: random.Random, many: bool) -> str:
    first, *rest = draw.choice(_VERBS).split()
    return " ".join([first.removesuffix("s") if many else first, *rest])


def _plain(draw: random.Random) -> str:
    subject, many = _phrase(draw)
    return f"{subject} {_verb(draw, many)} {_phrase(draw)[0]}"


def _told(draw: random.Random) -> str:
    name = draw.choice(_NAMES["she"] + _NAMES["he"])
    return f'{name} says "{_plain(draw)}"'


def _named(draw: random.Random) -> str:
    pronoun = draw.choice(tuple(_NAMES))
    name = draw.choice(_NAMES[pronoun])
    first, second = _phrase(draw)[0], _phrase(draw)[0]
    return f"{name} {_verb(draw, False)} {first} and {pronoun} {_verb(draw, False)} {second}"


class Driver(driver.Driver):
    """See the base class."""

    resolve = staticmethod(resolve)


class Executor(executor.Executor):
    """See the base class."""

    resolve = staticmethod(resolve)


class TextExampleGenSpec(component.SourceSpec):
    """Interface of TextExampleGen."""

    PARAMETERS = component.SourceSpec.PARAMETERS | parameters(
        window=int, unit=str, sample_train=int, sample_test=int
    )


class TextExampleGen(component.SourceExampleGen):
    """Cuts text into windows of one length.

    The output ``examples`` has the splits ``train``, ``val`` and ``eval``, as Cifar10ExampleGen
    writes them. Each example has the features ``text`` (bytes, UTF-8) and ``id`` (int64). ``val``
    and ``eval`` have ``val_fraction`` of the windows each, by a hash of their ids; of the sample,
    ``eval`` has ``sample_test`` windows.
    """

    SPEC_CLASS = TextExampleGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    DRIVER_CLASS = Driver

    def __init__(
        self,
        source: str,
        window: int,
        unit: str = "characters",
        val_fraction: float = 0.1,
        shards: int = 48,
        sample_train: int = 5_000,
        sample_test: int = 1_000,
        span: Any = spans.LATEST,
    ) -> None:
        """Configures the source.

        Args:
          source: path of a text file (UTF-8) or of a folder of ``.txt`` files; ``sample`` for
            generated sentences.
          window: tokens of an example.
          unit: what a token is: ``characters`` or ``words``.
          val_fraction: fraction of the windows that are held out.
          shards: files per split.
          sample_train: windows in the sample's train part.
          sample_test: windows in the sample's test part.
          span: of a ``source`` with words such as ``{SPAN}``: ``latest``, a number, or a date.

        Raises:
          SettingError: an argument is invalid.
        """
        if unit not in features.SEPARATORS:
            raise SettingError("unit", unit, "is unknown", " or ".join(features.SEPARATORS))
        super().__init__(
            source,
            span,
            window=window,
            unit=unit,
            val_fraction=val_fraction,
            shards=shards,
            sample_train=sample_train,
            sample_test=sample_test,
        )
