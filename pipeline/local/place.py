"""The file and line where an exception comes from."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_IN_TEXT = re.compile(r'^\s*File "(/[^"\n]+)", line (\d+), in ', re.MULTILINE)

_RUNNERS = pathlib.Path(__file__).resolve().parent


class Place(NamedTuple):
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        here = pathlib.Path.cwd()
        path = pathlib.Path(self.file)
        return f"{path.relative_to(here) if path.is_relative_to(here) else path}, line {self.line}"


def of(chain: Sequence[BaseException]) -> Place | None:
    """The innermost line that no installed package has: of the user's code, or of this project.

    A traceback inside a message comes first: AutoGraph, Beam's workers and the processes of a
    training hand on exceptions as text.

    Args:
        chain: an exception, then what it comes from.

    Returns:
        None where all lines are those of packages.
    """
    for link in reversed(chain):
        found = [*_of_traceback(link), *_of_text(str(link))]
        if own := [place for place in found if _is_own(place.file)]:
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
        or path.is_relative_to(_RUNNERS)  # they launch a step, whatever it is
    )


@functools.cache
def _standard_library() -> str:
    return os.path.realpath(sysconfig.get_paths()["stdlib"])
