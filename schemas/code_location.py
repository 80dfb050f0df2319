"""The file and line where an exception comes from."""

from __future__ import annotations

import os
import pathlib
import re
import sysconfig
import traceback
from collections.abc import Iterator
from typing import NamedTuple

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
