"""The file and line where an exception comes from."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import sysconfig
import traceback
from collections.abc import Iterator
from typing import NamedTuple

_IN_TEXT = re.compile(r'^\s*File "(/[^"\n]+)", line (\d+), in ', re.MULTILINE)

_RUNNERS = pathlib.Path(__file__).resolve().parents[1] / "pipeline" / "local"


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
    """A message of limited length, with file and line of its error appended if known.

    Args:
        text: the message.
        error: the exception of the message.
        limit: most characters.
    """
    where = of(error)
    end = f" ({where})" if where else ""
    room = limit - len(end)
    return (text if len(text) <= room else text[: room - 1].rstrip() + "…") + end


def of(error: BaseException) -> Place | None:
    """The innermost line outside installed packages: of the user's code, or of this project.

    A traceback inside a message has precedence, because AutoGraph, Beam's workers and the processes
    of a training pass on exceptions as text.

    Args:
        error: a raised exception.

    Returns:
        None if all lines are in packages.
    """
    for link in reversed(list(chain(error))):
        places = [*_of_traceback(link), *_of_text(str(link))]
        if own := [place for place in places if _is_own(place.file)]:
            return own[-1]
    return None


def _of_text(text: str) -> Iterator[Place]:
    for file, line in _IN_TEXT.findall(text):
        yield Place(file, int(line))


def _of_traceback(error: BaseException) -> Iterator[Place]:
    for frame, line in traceback.walk_tb(error.__traceback__):
        yield Place(frame.f_code.co_filename, line)


def _is_own(file: str) -> bool:
    path = pathlib.Path(file)
    return not (
        file.startswith("<")
        or path.name.startswith("__autograph_generated_file")
        or {"site-packages", "dist-packages"}.intersection(path.parts)
        or path.is_relative_to(_standard_library())
        or path.is_relative_to(_RUNNERS)  # they launch every step
    )


@functools.cache
def _standard_library() -> str:
    return os.path.realpath(sysconfig.get_paths()["stdlib"])
