"""Errors of settings in the caller's words: arguments, and objects in place of given names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from pydantic import ValidationError

from stagecraft import given
from stagecraft.schemas.errors import UserError, setting_error


@contextlib.contextmanager
def in_own_words() -> Iterator[None]:
    """Names objects (``the model``) in place of given names."""
    try:
        yield
    except UserError as error:
        texts = [str(error), error.setting, error.suggestion]
        known = rf"\b{given.MODULE}:([a-z]+)_[0-9a-f]+"
        text, setting, error.suggestion = (re.sub(known, r"the \1", text) for text in texts)
        text = re.sub(r"\b(\w+) was the \1 and is now the \1", r"the \1 is another one", text)
        error.args, error.setting = (text, *error.args[1:]), setting
        raise


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
