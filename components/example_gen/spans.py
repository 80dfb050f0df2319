"""Spans and versions of data, as TFX writes them in patterns of files. Imports nothing heavy.

| in a pattern | stands for |
|---|---|
| ``{SPAN}``, ``{SPAN:3}`` | the number of a span; with three digits |
| ``{YYYY}``, ``{MM}``, ``{DD}`` | a date; its span is the number of days since 1970-01-01 |
| ``{VERSION}``, ``{VERSION:3}`` | the number of a version of a span |

The rules are those of ``tfx.components.example_gen.utils``. Its functions need TensorFlow, which no
check of settings imports, and raise at a name that does not fit, such as ``span-old``. Only the
path up to the last of these words is listed, so that a search reads no folder of another span.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.example_gen.archives import files

LATEST = "latest"

_T = TypeVar("_T")

SPAN, VERSION = "span", "version"
"""Custom properties of Examples, numbers, as TFX's drivers set them."""

NAME, FILES, SERIES = "span_name", "span_files", "span_series"
"""Custom properties of Examples: the span for people, such as ``2026-11-27``; the number of its
files; and a digest of all that the span has in common with others of the same pattern."""

PATTERNS = "span_patterns"
"""Custom property of Examples: the patterns of the files, as JSON."""

_log = logging.getLogger(__name__)
_EPOCH = datetime.date(1970, 1, 1)
_WORD = re.compile(r"\{(SPAN|VERSION|YYYY|MM|DD)(?::([^{}]*))?\}")
_DATE = ("YYYY", "MM", "DD")
_DIGITS = {"YYYY": 4, "MM": 2, "DD": 2}
_USE = "{SPAN}, or {YYYY}, {MM} and {DD}, each once; and perhaps {VERSION}"
_SHOWN = 10  # spans that an error names


class MissingSpanError(UserError):
    """There is no such span."""

    def __init__(self, pattern: str, wanted: str, exist: Sequence[str], setting: str = "data.span"):
        """``exist``: the spans that exist, for people, the oldest first."""
        self.exist = tuple(exist)
        left = len(exist) - _SHOWN
        shown = ", ".join(exist[-_SHOWN:])
        there = f"{f'{left:,} older ones and ' if left > 0 else ''}{shown}"
        problem = (
            f"there is no span {wanted} of {pattern}; these spans exist: {there}"
            if exist
            else f"no file or folder has the name {pattern}"
        )
        if not exist and "[" in pattern:
            problem += "; TFX takes [ ] for one of several characters, so rename such a folder"
        super().__init__(
            f"{setting}: {wanted}: {problem}",
            setting=setting if exist else "data.source",
            value=wanted if exist else pattern,
            file=pattern,
            suggestion=there if exist else "a pattern of files that exist",
        )


class SpanNameError(UserError):
    """The name of a file or folder that fits a pattern, but does not name one span."""

    def __init__(self, path: str, problem: str, use: str):
        super().__init__(f"{path}: {problem}; {use}", file=path, suggestion=use)


class Span(NamedTuple):
    """A span that exists."""

    number: int
    version: int | None
    """Its newest version; None: the pattern has no versions."""

    patterns: tuple[str, ...]
    """The patterns with the span and version filled in; they may have ``*`` and ``?``."""

    paths: tuple[str, ...]
    """The files and folders of these names, sorted."""

    name: str
    """For people: a date, or the number."""

    source: tuple[str, ...]
    """The patterns with their words in braces."""

    def state(self) -> str:
        """A digest of names, sizes and times of all files; -1 of those that vanish meanwhile."""
        digest = hashlib.sha256()
        for path in sorted(_all_files(self.paths)):
            seen = (_unless_gone(look, path, -1) for look in (files.size, files.modified))
            digest.update(f"{path} {' '.join(map(str, seen))}\n".encode())
        return digest.hexdigest()

    def properties(self) -> dict[str, int | str]:
        """Custom properties of its Examples, without the series."""
        count = sum(1 for _ in _all_files(self.paths))
        version = {} if self.version is None else {VERSION: self.version}
        patterns = json.dumps(self.source)
        return {SPAN: self.number, **version, NAME: self.name, FILES: count, PATTERNS: patterns}


def told(properties: Mapping[str, Any]) -> dict[str, int | str]:
    """``span``, ``name``, ``version`` and ``files`` of Examples, from their custom properties.

    Empty without spans; then TFX's drivers set the span 0.
    """
    if not properties.get(NAME):
        return {}
    numbers = {"span": SPAN, "version": VERSION, "files": FILES}  # doubles on Kubeflow
    found = {name: int(properties[key]) for name, key in numbers.items() if key in properties}
    return {**found, "name": str(properties[NAME])}


def told_of(examples: Iterable[Mapping[str, Any]]) -> list[dict[str, int | str]]:
    """:func:`told` of several Examples that have spans, the newest last."""
    found = (told(properties) for properties in examples)
    return sorted(filter(None, found), key=lambda each: int(each["span"]))


def with_versions(
    read: Sequence[Mapping[str, int | str]], properties: Mapping[str, Any]
) -> list[dict[str, int | str]]:
    """The result of :func:`told_of`, with ``version_there`` where that is not the version read.

    Args:
        read: see :func:`told_of`.
        properties: custom properties of one of these Examples.
    """
    there: dict[int, int | None] = {}
    if PATTERNS in properties and read:
        try:
            for span in newest_first(json.loads(properties[PATTERNS])):
                if span.number < int(read[0]["span"]):
                    break
                there[span.number] = span.version
        except Exception as error:  # each file system has its own; the source may be out of reach
            _log.info("%s: the versions are not known: %s", properties[PATTERNS], error)
    return [
        {**each}
        if (now := there.get(int(each["span"]))) in (None, each.get("version"))
        else {**each, "version_there": now}
        for each in read
    ]


def words(told: Mapping[str, int | str]) -> str:
    """The result of :func:`told` for people: ``span 7, version 2, 3 files``; may be empty."""
    if not told:
        return ""
    version = f", version {told['version']}" if "version" in told else ""
    count = f"{told['files']:,} file{'' if told['files'] == 1 else 's'}"
    return f"span {told['name']}{version}, {count}"


def has(text: object) -> bool:
    """Whether a path has spans or versions."""
    return isinstance(text, str) and bool(_WORD.search(text))


def is_dated(pattern: str) -> bool:
    """Whether the spans of a pattern are days."""
    return "{YYYY}" in pattern


def check(pattern: str, setting: str = "data.source") -> None:
    """Refuses a pattern that TFX refuses.

    Raises:
        SettingError: a word is there twice, or without the others that it needs.
    """
    words = [match[1] for match in _WORD.finditer(pattern)]
    dated = [word for word in words if word in _DATE]
    for match in _WORD.finditer(pattern):
        has_width = match[2] is not None
        if has_width and (match[1] in _DATE or not re.fullmatch("0*[1-9][0-9]*", match[2])):
            problem = f"has the width {match[2]!r} in {match[0]}"
            raise SettingError(setting, pattern, problem, "a number of digits, such as {SPAN:3}")
    problem = ""
    if "SPAN" in words and dated:
        problem = "has a span and a date, which is a span, too"
    elif len(words) != len(set(words)):
        problem = "has a word in braces twice"
    elif dated and len(dated) < len(_DATE):
        problem = "has a part of a date only"
    elif words == ["VERSION"]:
        problem = "has versions, but no span"
    elif others := re.findall(r"\{[^{}]*\}", _WORD.sub("", pattern)):
        problem = f"has {others[0]}, which is not a word that TFX knows"
    if problem:
        raise SettingError(setting, pattern, problem, _USE)


def number_of(wanted: str, setting: str = "data.span") -> int | None:
    """The number of a span: ``7``, a date, or TFX's ``RangeConfig`` in JSON; None: the newest one.

    Raises:
        SettingError: the text is none of these.
    """
    if wanted in ("", LATEST):
        return None
    use = "latest, a number, or a date such as 2026-11-27"
    if wanted.startswith("{"):  # in example_gen_args
        try:
            fixed = json.loads(wanted).get("static_range")
            return None if fixed is None else int(fixed.get("start_span_number", 0))
        except (AttributeError, TypeError, ValueError):
            raise SettingError(setting, wanted, "is no RangeConfig in JSON", use) from None
    if re.fullmatch("[0-9]+", wanted):
        return int(wanted)
    try:
        number = (datetime.date.fromisoformat(wanted) - _EPOCH).days
    except ValueError:
        raise SettingError(setting, wanted, "is not a span", use) from None
    if number < 0:
        raise SettingError(setting, wanted, "is before 1970-01-01", use)
    return number


def name_of(number: int, pattern: str) -> str:
    """A span for people: a date, if the pattern has dates."""
    if not is_dated(pattern):
        return str(number)
    try:
        return (_EPOCH + datetime.timedelta(days=number)).isoformat()
    except OverflowError:  # a number that is no day
        return str(number)


def find(patterns: Sequence[str], wanted: str = LATEST) -> Span:
    """The newest version of a span.

    Args:
        patterns: one for each split; only spans and versions count that all of them have.
        wanted: see :func:`number_of`.

    Raises:
        SettingError: a pattern is wrong.
        MissingSpanError: there is no such span.
        SpanNameError: a date is before 1970, or two names are of the same span and version.
    """
    number = number_of(wanted)
    for found in newest_first(patterns, number):
        return found
    pattern = patterns[0]
    shown = LATEST if number is None else name_of(number, pattern)
    raise MissingSpanError(pattern, shown, [span.name for span in newest_first(patterns)][::-1])


def base(pattern: str) -> str:
    """The folder before the first word in braces, and before the first ``*``."""
    return posixpath.dirname(re.split(r"[{*?]", pattern, maxsplit=1)[0])


def series(properties: Mapping[str, Any]) -> str:
    """The digest :data:`SERIES` of an ExampleGen's execution properties, before it finds a span."""
    same = {name: str(value) for name, value in properties.items() if name != "range_config"}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def select(newest: Mapping[str, Any], others: Mapping[Any, Mapping[str, Any]]) -> list[Any]:
    """Keys of the examples to train on besides the newest ones, the oldest span first.

    Args:
        newest: custom properties of the examples of this run.
        others: custom properties of examples whose span is in the window. Of a span, the last ones
            count, so they are in the order in which runs used them last: a run uses the version and
            the content that are there, also after a version was removed or a file was restored.
    """
    last: dict[int, Any] = {}
    for key, properties in others.items():
        if properties.get(SERIES) == newest.get(SERIES):
            last[int(properties[SPAN])] = key
    last.pop(int(newest[SPAN]), None)
    return [last[span] for span in sorted(last)]


class Window(NamedTuple):
    """The spans that a model is trained on."""

    names: tuple[str, ...]
    """Of the spans, the newest last."""

    missing: tuple[str, ...]
    """Spans in the window that are not there, the oldest first."""

    older: int = 0
    """Number of the missing ones that are before the first one that is there."""

    other: tuple[str, ...] = ()
    """For people: the spans that have another version than the one that was read."""

    def words(self) -> str:
        """For people: ``3 spans, 5 to 7`` or ``2 of 3 spans: 5, 7; without 6``."""
        asked = len(self.names) + len(self.missing)
        if self.missing:
            parts = [f"{len(self.names)} of {asked} spans: {', '.join(self.names)}"]
            if gaps := self.missing[self.older :]:
                parts.append(f"without {', '.join(gaps)}")
            if self.older:  # perhaps there never was one
                parts.append(f"none read before {self.names[0]}")
            return "; ".join([*parts, *self.other])
        several = f"{asked} spans, {self.names[0]} to {self.names[-1]}"
        return "; ".join([several if asked > 1 else f"1 span, {self.names[0]}", *self.other])


def window(read: Sequence[Mapping[str, int | str]], size: int) -> Window:
    """The window of the spans that were read.

    Args:
        read: results of :func:`told` or :func:`with_versions`, the newest last.
    """
    last = int(read[-1]["span"])
    there = {int(each["span"]): str(each["name"]) for each in read}
    pattern = "{SPAN}" if str(read[-1]["name"]) == str(last) else "{YYYY}"
    first = max(last - size + 1, 0)
    missing = [each for each in range(first, last) if each not in there]
    other = (
        f"{each['name']} in version {each['version']}, but version {each['version_there']} is there"
        for each in read
        if "version_there" in each
    )
    return Window(
        tuple(there.values()),
        tuple(name_of(each, pattern) for each in missing),
        sum(each < min(there) for each in missing),
        tuple(other),
    )


def weights(examples: Iterable[Mapping[str, Any]], of_spans: Sequence[float]) -> list[float]:
    """The weight of each of several Examples of a window.

    Args:
        examples: their custom properties.
        of_spans: weights of the spans of the window, the last one of its newest span; may be
            empty, as is then the result.

    Raises:
        SettingError: the examples have no spans, or more than there are weights.
    """
    if not of_spans:
        return []
    numbers = [int(each[SPAN]) if each.get(NAME) else None for each in examples]
    setting, last = "train.window_weights", max((n for n in numbers if n is not None), default=0)
    found = []
    for number in numbers:
        if number is None:
            problem = "needs examples with spans, but some of the Trainer's have none"
            use = "data.source with {SPAN} or a date, and transform.materialize: false"
            raise SettingError(setting, list(of_spans), problem, use)
        if last - number >= len(of_spans):
            problem = f"has no weight for a span that is {last - number} before the newest one"
            use = f"{last - number + 1} weights, the oldest first"
            raise SettingError(setting, list(of_spans), problem, use)
        found.append(of_spans[number - last - 1])
    return found


def newest_first(patterns: Sequence[str], number: int | None = None) -> Iterator[Span]:
    """Spans, each in its newest version, the newest first; looks each up when it is its turn.

    Args:
        patterns: see :func:`find`.
        number: only this span.

    Raises:
        SettingError: a pattern is wrong.
        SpanNameError: see :func:`find`.
    """
    for pattern in patterns:
        check(pattern)
    by_pattern = [_listed(pattern, number) for pattern in patterns]
    common = set(by_pattern[0]).intersection(*by_pattern[1:])
    last = None
    for span, version in sorted(common, reverse=True):
        filled = [texts[span, version] for texts in by_pattern]
        paths = [] if span == last else [files.glob(text) for text in filled]
        if paths and all(paths):
            last, every_path = span, tuple(sorted({path for each in paths for path in each}))
            name = name_of(span, patterns[0])
            has_version = "{VERSION" in patterns[0]
            yield Span(
                number=span,
                version=version if has_version else None,
                patterns=tuple(filled),
                paths=every_path,
                name=name,
                source=tuple(patterns),
            )


def _listed(pattern: str, number: int | None) -> dict[tuple[int, int], str]:
    """(span, version) -> the pattern with both filled in, as the names of files have them."""
    last = [*_WORD.finditer(pattern)][-1].end()
    end = (pattern + "/").index("/", last)
    head, tail = pattern[:end], pattern[end:]
    regex = re.compile(_regex(head))
    found: dict[tuple[int, int], str] = {}
    for path in files.glob(_WORD.sub("*", head)):
        if not (match := regex.fullmatch(path)):
            continue
        texts = match.groupdict()
        try:
            span = (
                int(texts["SPAN"])
                if "SPAN" in texts
                else (datetime.date(*(int(texts[part]) for part in _DATE)) - _EPOCH).days
            )
        except ValueError:  # the 31st of February
            continue
        if span < 0:
            problem = "is a date before 1970-01-01, and the number of a span is never negative"
            raise SpanNameError(path, problem, "rename it")
        if number in (None, span):
            filled = _WORD.sub(lambda word, texts=texts: texts[word[1]], head)  # type: ignore[misc]
            key = span, int(texts.get("VERSION", 0))
            if (other := found.setdefault(key, filled + tail)) != filled + tail:
                problem = f"has the same span and version as {other.removesuffix(tail)}"
                raise SpanNameError(path, problem, "rename or remove one of them")
    return found


def _regex(pattern: str) -> str:
    parts, end = [], 0
    for word in _WORD.finditer(pattern):
        parts.append(_literal(pattern[end : word.start()]))
        width = word[2] or _DIGITS.get(word[1])
        parts.append(f"(?P<{word[1]}>[0-9]{f'{{{int(width)}}}' if width else '+'})")
        end = word.end()
    return "".join(parts) + _literal(pattern[end:])


def _literal(text: str) -> str:
    return re.escape(text).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")


def _all_files(paths: Iterable[str]) -> Iterator[str]:
    """The files, and those in the folders and below; not those whose names begin with a dot."""
    for path in paths:
        if files.is_folder(path):
            names: list[str] = _unless_gone(files.names, path, [])
            inside = (name for name in names if not name.startswith("."))
            yield from _all_files(posixpath.join(path, name) for name in inside)
        else:
            yield path


def _unless_gone(look: Callable[[str], _T], path: str, gone: _T) -> _T:
    """Looks at a path; returns ``gone`` if another program has removed the path meanwhile."""
    try:
        return look(path)
    except FileNotFoundError:  # also of one that is back by now
        return gone
    except OSError:
        if files.exists(path):
            raise
        return gone
