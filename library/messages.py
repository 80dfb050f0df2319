"""Errors of settings in the caller's words: arguments, and objects in place of given names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from pydantic import ValidationError

from stagecraft import given
from stagecraft.schemas.errors import UserError, setting_error
from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.settings import TrainSettings

_ARGUMENTS = rf"\b(?:train\.(?={'|'.join(TrainSettings.model_fields)})|task\.(?=loss|metrics))\b"

_ADVICE = (
    "Use the same arguments, or another checkpoint_dir. A model that is built again in the same "
    "process differs in the names of its layers: give them names, keep the model, or call "
    "keras.utils.clear_session() before you build it"
)


@contextlib.contextmanager
def in_own_words(*, of_arguments: bool = False) -> Iterator[None]:
    """Names objects (``the model``) in place of given names.

    Args:
        of_arguments: names arguments in place of settings of ``train:`` and ``task:`` as well.
    """
    try:
        yield
    except UserError as error:
        texts = [str(error), error.setting, error.suggestion]
        if of_arguments:
            texts = [text.replace(resume.ADVICE, _ADVICE) for text in texts]
            texts = [re.sub(_ARGUMENTS, "", text) for text in texts]
        own = "model" if of_arguments and texts[0].startswith("model: ") else ""
        known = rf"\b{given.MODULE}:([a-z]+)_[0-9a-f]+"
        text, setting, error.suggestion = (re.sub(known, r"the \1", text) for text in texts)
        text = re.sub(r"\b(\w+) was the \1 and is now the \1", r"the \1 is another one", text)
        error.args, error.setting = (text, *error.args[1:]), setting or own
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
