"""Validates a tree; errors name the file, or the overrides without which they disappear."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from stagecraft.common import secrets
from stagecraft.common.errors import setting_error
from stagecraft.common.settings import UnknownSettingError
from stagecraft.pipeline.settings import overrides as settings_overrides
from stagecraft.pipeline.settings.overrides import Override, Tree
from stagecraft.pipeline.settings.strict_yaml import SettingsError

Model = TypeVar("Model", bound=BaseModel)

_WHOLE, _NUMBER = "expected an integer", "expected a number"

_EXPECTED = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), _WHOLE),
    "int_parsing_size": "expected less than 2^63",
    **dict.fromkeys(("float_parsing", "float_type"), _NUMBER),
    "finite_number": "expected a finite number",
    **dict.fromkeys(("bool_parsing", "bool_type"), "expected true or false"),
    "string_type": "expected text",
    "string_pattern_mismatch": "expected text that matches {pattern}",
    **dict.fromkeys(("tuple_type", "list_type"), "expected a list"),
    "missing": "is required",
    **dict.fromkeys(("model_type", "dict_type"), "expected a section of names and values"),
    "literal_error": "expected {expected}",
    "greater_than_equal": "expected {ge} or more",
    "greater_than": "expected more than {gt}",
    "less_than_equal": "expected {le} or less",
    "less_than": "expected less than {lt}",
}
"""Type of pydantic's error -> our message (https://docs.pydantic.dev, Errors)."""


class _Problem(NamedTuple):
    """One wrong setting."""

    path: tuple[str, ...]
    message: str
    setting: str
    suggestion: str = ""


def validate(
    model: type[Model], tree: Tree, overrides: Sequence[Override], source: str | None
) -> Model:
    """Validates a tree of settings."""
    whole = settings_overrides.applied(tree, overrides)
    try:
        settings = model.model_validate(whole)
    except ValidationError as error:
        problems = list(_problems(error))
    else:
        for override in overrides:
            _refuse_left_out(override.value, override.text, override.path)
        _refuse_left_out(whole, source)
        return settings

    def remaining(kept: Sequence[Override]) -> list[_Problem]:
        try:
            model.model_validate(settings_overrides.applied(tree, kept))
        except ValidationError as error:
            return list(_problems(error))
        except SettingsError:  # an override that needs another one
            return []
        return []

    lines = []
    for problem in problems:
        blamed = _blamed(problem, overrides, remaining)
        origin = ", ".join(override.text for override in blamed) or source
        lines.append(f"{origin}: {problem.message}" if origin else problem.message)
    raise SettingsError(
        "; ".join(_grouped(lines, source)),
        setting=problems[0].setting,
        suggestion=problems[0].suggestion,
        file=source or "",
    )


def _blamed(
    problem: _Problem,
    overrides: Sequence[Override],
    remaining: Callable[[Sequence[Override]], list[_Problem]],
) -> list[Override]:
    """The overrides that cause a problem; none if the file causes it."""
    last = {override.path: override for override in overrides}  # the last one counts
    below = [path for path in last if path[: len(problem.path)] == problem.path]
    if below == [problem.path]:
        return [last[problem.path]]
    if not overrides or problem in remaining([]):
        return []

    def is_near(override: Override) -> bool:
        """Whether one of the two paths holds the other."""
        return all(a == b for a, b in zip(override.path, problem.path, strict=False))

    near = [each for each in last.values() if is_near(each)] or [*last.values()]
    without = {each.path: remaining([o for o in overrides if o is not each]) for each in near}
    cured = [each for each in near if problem not in without[each.path]]
    alone = [each for each in cured if not without[each.path]]
    blamed = alone or cured or near
    deepest = max(len(each.path) for each in blamed)
    return [each for each in blamed if len(each.path) == deepest]


def _grouped(lines: list[str], source: str | None) -> Iterator[str]:
    """The lines, with the file's name only in the first of its lines."""
    prefix, is_named = f"{source}: ", False
    for line in lines:
        of_file = source is not None and line.startswith(prefix)
        yield line.removeprefix(prefix) if of_file and is_named else line
        is_named = is_named or of_file


def message_of(problem: Mapping[str, Any]) -> str:
    """The message for one of pydantic's errors."""
    if expected := _EXPECTED.get(problem["type"]):
        return expected.format(**problem.get("ctx", {}))
    return str(problem["msg"]).removeprefix("Value error, ")


def _problems(error: ValidationError) -> Iterator[_Problem]:
    for problem in error.errors(include_url=False):
        path = tuple(str(part) for part in problem["loc"])
        if refused := setting_error(problem):
            said, use = secrets.redact(str(refused)), secrets.redact(refused.suggestion)
            setting = refused.setting
            # A setting within a list or a mapping does not know its place.
            whole = setting if "." in setting or not path else ".".join([*path, setting])
            yield _Problem(path, said, whole, use)
            continue
        message, value = secrets.redact(message_of(problem)), problem["input"]
        if path:
            message = f"{'.'.join(path)}: {message}"
        if not isinstance(value, dict) and value is not None and problem["type"] != "missing":
            text = repr(settings_overrides.shown_value(path, value))
            message += f" (given: {settings_overrides.shortened(text)})"
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, UnknownSettingError):
            named = ".".join([*path, secrets.redact(cause.key)])
            yield _Problem(path, message, named, cause.near)
        else:
            yield _Problem(path, message, ".".join(path))


def _refuse_left_out(tree: Any, source: str | None, path: Sequence[str] = ()) -> None:
    """Refuses the placeholder that stands for a secret in shown settings."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            _refuse_left_out(value, source, (*path, str(name)))
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            _refuse_left_out(value, source, path)
    elif isinstance(tree, str) and secrets.is_left_out(tree):
        where = f"{source}: {'.'.join(path)}" if source else ".".join(path)
        value = "the value" if tree == secrets.LEFT_OUT else f"in {tree!r},"
        raise SettingsError(
            f"{where}: {value} {secrets.LEFT_OUT!r} is a placeholder for a secret; replace "
            f"{secrets.LEFT_OUT!r} with the secret",
            setting=".".join(path),
        )
