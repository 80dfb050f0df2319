"""Errors that people see without a traceback, and errors of other libraries in one short line.

Keras colours its messages, TensorFlow prints the values of tensors, and both write paragraphs: the
line has neither terminal codes nor these values.
"""

from __future__ import annotations

import difflib
import os
import pathlib
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from stagecraft.common.text import plain, visible


class UserError(Exception):
    """Something outside this program is wrong, and the user can mend it.

    The message is one paragraph: what is wrong, why, and what works. The fields say the same to
    programs; tests assert the fields.
    """

    def __init__(
        self,
        message: str,
        *,
        setting: str = "",
        value: object = None,
        suggestion: str = "",
        file: str = "",
        record: str = "",
    ):
        """Makes the error.

        Args:
            setting: dotted name of the setting, or the command's option, such as
                ``parallel.stages`` or ``--data``.
            suggestion: what works, such as ``parallel.strategy: grid``.
            file: path or address of the file.
            record: the part of the file: a line, a column, a feature, a member of an archive.
        """
        super().__init__(visible(message, lines=True))
        self.setting = setting
        self.value = value
        self.suggestion = suggestion
        self.file = file
        self.record = record


class TransientError(UserError):
    """A failure that may pass: a server that does not answer. Trying again may help."""


class SettingError(UserError, ValueError):
    """A setting whose value cannot be used. pydantic collects it, as any ValueError."""

    def __init__(
        self, setting: str, value: object, problem: str, use: str = "", *, shown: str = ""
    ):
        """Makes the message ``SETTING: VALUE PROBLEM; use USE``.

        Args:
            setting: its full name, such as ``parallel.stages``.
            problem: what is wrong with it, a phrase with a verb.
            use: a value that works, such as ``parallel.strategy: grid``.
            shown: the value in the message, if not ``value`` itself; of a tuple, its items.
        """
        advice = f"; use {use}" if use else ""
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        super().__init__(
            f"{setting}: {visible(shown or text)} {problem}{advice}",
            setting=setting,
            value=value,
            suggestion=use,
        )


def setting_error(problem: Mapping[str, Any]) -> SettingError | None:
    """The SettingError behind one of pydantic's errors, if any. It names its setting in full."""
    cause = problem.get("ctx", {}).get("error")
    return cause if isinstance(cause, SettingError) else None


LIMIT = 600  # most characters of a message; the log has the rest
_MOST = 20_000  # most characters that are processed
_PRINTED = re.compile(r"tf\.Tensor\((?!shape=)[^()]*?,? ?(shape=\([^)]*\), dtype=\w+)\)")
_SHOWN = re.compile(r",? numpy=(?:array\([^()]*\)|[^>]*)>")
_ARRAY = re.compile(r"\barray\((\[[^()]*\])(?:, shape=\([^)]*\))?(?:, dtype=([^)]*))?\)")
_NUMBERS = re.compile(r"\[(?:\[[][\s\d.,+\-einfaj]{0,4000}\]|[\s\d.,+\-einfaj]{30,4000})\]")
"""Nested lists of numbers, and long flat ones."""


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Finds what to use in place of a name: the known one that is spelled most like it.

    Args:
        otherwise: the result if none is; None: all known names. Empty, if none is known.
    """
    names = [*known]
    for near in difflib.get_close_matches(name, names, n=1):
        return near
    return otherwise if otherwise is not None else f"one of {', '.join(names)}" if names else ""


def said(error: BaseException) -> str:
    """The type of an exception, and its message: ``ValueError: one line``."""
    return f"{type(error).__name__}: {cleaned(str(error)) or 'no message'}"


def cleaned(text: str, limit: int = LIMIT) -> str:
    """A message of another library in one line, of at most ``limit`` characters.

    It has no terminal and control characters, and shape and dtype in place of tensors and arrays.
    """
    text = " ".join(plain(text[:_MOST]).split())
    text = _PRINTED.sub(r"tf.Tensor(\1)", text)
    text = _SHOWN.sub(">", text)
    text = _ARRAY.sub(
        lambda found: f"array(shape={_shape(found[1])}, dtype={found[2] or _dtype(found[1])})", text
    )
    text = _NUMBERS.sub(lambda found: f"[values of shape {_shape(found[0])}]", text)
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _dtype(values: str) -> str:
    """The default dtype of such values, which NumPy does not print."""
    if "True" in values or "False" in values:
        return "bool"
    return "float64" if re.search(r"[.naif]", values.replace("...", "")) else "int64"


def _shape(values: str) -> str:
    """Shape of nested lists, from the first list of each depth; ``?`` for omitted values."""
    found: dict[int, str] = {}
    counts: list[int] = []
    gaps: set[int] = set()
    for token in re.findall(r"\[|\]|\.\.\.|[^\s,\[\]]+", values):
        if token == "[":
            if counts:
                counts[-1] += 1
            counts.append(0)
        elif token == "]" and counts:
            depth, count = len(counts), counts.pop()
            found.setdefault(depth, "?" if depth in gaps else str(count))
        elif token == "...":
            gaps.add(len(counts))
        elif counts:
            counts[-1] += 1
    sizes = [found[depth] for depth in sorted(found)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


_IN_TEXT = re.compile(r'^\s*File "(/[^"\n]+)", line (\d+), in ', re.MULTILINE)

_RUNNERS = pathlib.Path(__file__).resolve().parents[1] / "pipeline" / "local"
_STANDARD_LIBRARY = os.path.realpath(sysconfig.get_paths()["stdlib"])


class Place(NamedTuple):
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        here = pathlib.Path.cwd()
        path = pathlib.Path(self.file)
        return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{self.line}"


def chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, followed by its causes."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def append(text: str, error: BaseException, limit: int) -> str:
    """A message of limited length, with file and line of its error appended if known."""
    where = of(error)
    end = f" ({where})" if where else ""
    room = limit - len(end)
    return (text if len(text) <= room else text[: room - 1].rstrip() + "…") + end


def of(error: BaseException) -> Place | None:
    """The innermost line outside installed packages: of the user's code, or of this project.

    A traceback inside a message has precedence, because AutoGraph, Beam's workers and the processes
    of a training pass on exceptions as text. None if all lines are in packages.
    """
    for link in reversed(list(chain(error))):
        frames = traceback.walk_tb(link.__traceback__)
        places = [Place(frame.f_code.co_filename, line) for frame, line in frames]
        places += [Place(file, int(line)) for file, line in _IN_TEXT.findall(str(link))]
        if own := [place for place in places if _is_own(place.file)]:
            return own[-1]
    return None


def _is_own(file: str) -> bool:
    path = pathlib.Path(file)
    return not (
        file.startswith("<")
        or path.name.startswith("__autograph_generated_file")
        or {"site-packages", "dist-packages"}.intersection(path.parts)
        or path.is_relative_to(_STANDARD_LIBRARY)
        or path.is_relative_to(_RUNNERS)  # they launch every step
    )
