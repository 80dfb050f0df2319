"""Errors of settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pydantic import ValidationError

from stagecraft.schemas.errors import UserError, setting_error


@contextlib.contextmanager
def readable(section: str = "") -> Iterator[None]:
    """Raises pydantic's first error as a UserError; ``section``: of the settings in the block."""
    try:
        yield
    except ValidationError as error:
        problem = error.errors()[0]
        own = setting_error(problem)
        if own is not None:
            raise own from None
        setting = ".".join([*filter(None, [section]), *map(str, problem["loc"])])
        value = f"{problem['input']}: " if problem["loc"] else ""
        raise UserError(
            f"{setting}: {value}{problem['msg'].removeprefix('Value error, ')}",
            setting=setting,
            value=problem.get("input"),
        ) from None
