"""Makes settings of a tree, or says what is wrong with it, and who gave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from stagecraft.pipeline.settings import overrides as given_overrides
from stagecraft.pipeline.settings.errors import SettingsError
from stagecraft.pipeline.settings.overrides import Override, Tree
from stagecraft.schemas import secrets
from stagecraft.schemas.errors import SettingError

Model = TypeVar("Model", bound=BaseModel)

_WHOLE, _NUMBER = "expected a whole number", "expected a number"

_EXPECTED = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), _WHOLE),
    "int_parsing_size": "expected less than 2^63",
    **dict.fromkeys(("float_parsing", "float_type"), _NUMBER),
    "finite_number": "expected a finite number",
    **dict.fromkeys(("bool_parsing", "bool_type"), "expected true or false"),
    "string_type": "expected text",
    "string_pattern_mismatch": "expected text that matches {pattern}",
    **dict.fromkeys(("tuple_type", "list_type"), "expected a list"),
    "missing": "is needed",
    **dict.fromkeys(
        ("model_type", "dict_type"), "expected settings below it, each a name and a value"
    ),
    "literal_error": "expected {expected}",
    "greater_than_equal": "expected {ge} or more",
    "greater_than": "expected more than {gt}",
    "less_than_equal": "expected {le} or less",
    "less_than": "expected less than {lt}",
}
"""Kind of pydantic's error -> what is said in its place (https://docs.pydantic.dev, Errors)."""


class _Problem(NamedTuple):
    """One mistake."""

    path: tuple[str, ...]
    message: str
    shown: str
    """What was given, for the message."""

    def __str__(self) -> str:
        where = ".".join(self.path)
        return f"{where}: {self.message}{self.shown}" if where else self.message


def made(
    model: type[Model], tree: Tree, overrides: Sequence[Override], source: str | None
) -> Model:
    """Settings of a tree.

    Args:
        model: of the whole tree.
        tree: what a file holds.
        overrides: what is given in place of parts of it.
        source: the file's name; None where there is none.

    Raises:
        SettingsError: a value cannot be. It names each mistake, and what gave it: the file, or
            overrides without which the mistake is gone.
    """
    whole = given_overrides.applied(tree, overrides)
    try:
        settings = model.model_validate(whole)
    except ValidationError as error:
        found = list(_problems(error))
    else:
        for override in overrides:
            _refuse_left_out(override.value, override.given, override.path)
        _refuse_left_out(whole, source)
        return settings

    def remaining(kept: Sequence[Override]) -> list[_Problem]:
        try:
            model.model_validate(given_overrides.applied(tree, kept))
        except ValidationError as error:
            return list(_problems(error))
        except SettingsError:  # of one that needs another one
            return []
        return []

    lines = []
    for problem in found:
        blamed = _blamed(problem, overrides, remaining)
        who = ", ".join(override.given for override in blamed) or source
        lines.append(f"{who}: {problem}" if who else str(problem))
    raise SettingsError("; ".join(_grouped(lines, source)))


def _blamed(
    problem: _Problem,
    overrides: Sequence[Override],
    remaining: Callable[[Sequence[Override]], list[_Problem]],
) -> list[Override]:
    """The overrides that make a problem; none where the file does."""
    last = {override.path: override for override in overrides}  # which counts
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
    found = alone or cured or near
    deepest = max(len(each.path) for each in found)
    return [each for each in found if len(each.path) == deepest]


def _grouped(lines: list[str], source: str | None) -> Iterator[str]:
    """The file is named once."""
    prefix, named = f"{source}: ", False
    for line in lines:
        of_file = source is not None and line.startswith(prefix)
        yield line.removeprefix(prefix) if of_file and named else line
        named = named or of_file


def _problems(error: ValidationError) -> Iterator[_Problem]:
    for problem in error.errors(include_url=False):
        path = tuple(str(part) for part in problem["loc"])
        told = _EXPECTED.get(problem["type"])
        message = problem["msg"].removeprefix("Value error, ")
        message = told.format(**problem.get("ctx", {})) if told else message
        given = problem["input"]
        shown = ""
        if not isinstance(given, dict) and given is not None and problem["type"] != "missing":
            value = repr(given_overrides.shown_value(path, given))
            shown = f" (given: {given_overrides.shortened(value)})"
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, SettingError) and cause.setting == ".".join(path):
            message, shown = message.removeprefix(f"{cause.setting}: "), ""
        yield _Problem(path, secrets.redact(message), shown)


def _refuse_left_out(tree: Any, source: str | None, path: Sequence[str] = ()) -> None:
    """A secret that was left out of what is shown is not one that can be used."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            _refuse_left_out(value, source, (*path, str(name)))
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            _refuse_left_out(value, source, path)
    elif isinstance(tree, str) and secrets.is_left_out(tree):
        where = f"{source}: {'.'.join(path)}" if source else ".".join(path)
        raise SettingsError(
            f"{where}: {tree}: a secret was left out here when the settings were shown; put it in"
        )
