"""The base of every section of settings, and mappings and lists in a setting.

YAML gives the mapping or the list itself; a flat setting, which ML Metadata stores, is its JSON.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from stagecraft.common import secrets, user_objects
from stagecraft.common.errors import SettingError, UserError, nearest, setting_error

LARGEST = 2**63 - 1
"""Largest integer of ML Metadata, TensorFlow and Kubernetes (int64)."""


class UnknownSettingError(ValueError):
    """A key that no section has; pydantic collects it, as any ValueError."""

    def __init__(self, message: str, key: str, near: str):
        """``near``: the setting that was probably meant; empty: none is near."""
        super().__init__(message)
        self.key, self.near = key, near


class Settings(BaseModel):
    """Base of every section: frozen; an unknown key is an error that suggests the nearest one.

    Numbers are finite, integers have 64 bits, and no address contains a password or a signature.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    credentials_advice: ClassVar[str] = (
        "pass credentials by the environment, such as AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or by kubeflow.every_step.secrets"
    )
    """How to pass credentials instead of in an address."""

    is_recorded: ClassVar[bool] = False
    """Whether ML Metadata records all values: then mappings have no credentials, either."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    near = nearest(str(key), cls.model_fields, "")
                    hint = f"did you mean {near!r}?" if near else ""
                    known = "the known settings are " + ", ".join(cls.model_fields)
                    shown = secrets.redact(f"{str(key)!r}")
                    message = f"unknown setting {shown}; {hint or known}"
                    raise UnknownSettingError(message, str(key), near)
        return data

    @field_validator("*", mode="after")
    @classmethod
    def _refuse_everywhere(cls, value: Any) -> Any:
        for item in _leaves(value, in_mappings=cls.is_recorded):
            if isinstance(item, int) and abs(item) > LARGEST:
                raise ValueError("expected less than 2^63")
            if isinstance(item, str):
                secrets.refuse_in_address(item, cls.credentials_advice)
        return value


def _leaves(value: Any, *, in_mappings: bool) -> Iterator[Any]:
    """A value, or the items of a list and the keys and values of a mapping, at any depth."""
    if isinstance(value, dict):
        value = (*value, *value.values()) if in_mappings else ()
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item, in_mappings=in_mappings)
    else:
        yield value


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


def mapping(setting: str, value: Any) -> dict[str, Any]:
    """A mapping, from itself or its JSON. The order is kept."""
    if value is None or value == "":
        return {}
    parsed = json_of(value)
    if not isinstance(parsed, Mapping) or not all(isinstance(key, str) for key in parsed):
        raise SettingError(setting, value, "is not a mapping", "names and values: {NAME: VALUE}")
    _check_json(setting, dict(parsed))
    return dict(parsed)


def names(setting: str, value: Any, example: str = "NAME") -> tuple[str, ...]:
    """Names, from a list, its JSON, or a text that separates them by commas.

    Args:
        example: names that the setting accepts, for the message of an error.
    """
    parsed = json_of(value)
    if isinstance(value, str) and not isinstance(parsed, list):
        parsed = value.split(",") if value else ()
    if parsed is None:
        return ()
    if not isinstance(parsed, (list, tuple)) or not all(isinstance(each, str) for each in parsed):
        raise SettingError(setting, value, "is not a list of names", f"names such as {example}")
    return tuple(filter(None, (each.strip() for each in parsed)))


def patterns(setting: str, value: Any) -> tuple[str, ...]:
    """Regular expressions, from a list, its JSON, or one expression."""
    parsed = json_of(value)
    if isinstance(value, str) and not isinstance(parsed, list):
        parsed = [value] if value else ()
    if not parsed:
        return ()
    if not isinstance(parsed, (list, tuple)) or not all(isinstance(each, str) for each in parsed):
        raise SettingError(setting, value, "is not a list of regular expressions", "[head/, bias$]")
    for each in parsed:
        _check_pattern(setting, each)
    return tuple(parsed)


def factors(setting: str, value: Any) -> dict[str, float]:
    """A mapping from regular expressions to numbers of 0 or more, from itself or its JSON."""
    return _numbers(
        setting, value, "is no factor", "a number of 0 or more", lambda factor: factor >= 0
    )


def shares(setting: str, value: Any) -> dict[str, float]:
    """A mapping from regular expressions to numbers between 0 and 1, from itself or its JSON."""
    return _numbers(
        setting,
        value,
        "is no share of all steps",
        "a number between 0 and 1, such as 0.3",
        lambda share: 0 < share < 1,
    )


def _numbers(
    setting: str, value: Any, problem: str, use: str, fits: Callable[[float], bool]
) -> dict[str, float]:
    parsed = mapping(setting, value)
    for pattern, number in parsed.items():
        _check_pattern(setting, pattern)
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not fits(number):
            raise SettingError(setting, number, f"{problem} for {pattern!r}", use)
    return parsed


def positive_numbers(setting: str, value: Any) -> tuple[float, ...]:
    """Numbers above 0, from a list, its JSON, or a text that separates them by commas."""
    text = value.strip().removeprefix("[").removesuffix("]") if isinstance(value, str) else None
    found = value if text is None else text.split(",") if text else ()
    try:
        numbers = tuple(map(float, found or ()))
    except (TypeError, ValueError):
        numbers = (0.0,)
    if not all(0 < number < math.inf for number in numbers):
        raise SettingError(setting, value, "is not a list of numbers above 0", "[0.5, 1, 2]")
    return numbers


def dotted_names(setting: str, value: Any) -> tuple[str, ...]:
    """Names of the form ``package.module:name``, as :func:`names` takes them."""
    found = names(setting, value, "mine.logs:Printer")
    for name in found:
        if not user_objects.is_name(name):
            raise SettingError(
                setting, name, "does not have the form package.module:Class", "mine.logs:Printer"
            )
    return found


def _check_pattern(setting: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise SettingError(
            setting, pattern, f"is not a regular expression: {error}", re.escape(pattern)
        ) from None


def json_of(value: Any) -> Any:
    """The value; a text is parsed as JSON, and gives None if it is none."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def _check_json(setting: str, value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise SettingError(setting, value, "has a number that is not finite") from None
    except TypeError as error:
        raise SettingError(setting, value, f"has a value that JSON cannot hold: {error}") from None


def primitive(value: Any, *, sort_keys: bool = False) -> Any:
    """A setting's value as ML Metadata stores it; ``sort_keys``: of a mapping without an order."""
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, sort_keys=sort_keys)
    return int(value) if isinstance(value, bool) else value


def is_section(annotation: Any) -> bool:
    """Whether a field of this type has settings of its own."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def structured(value: Any, annotation: Any) -> Any:
    """The mapping or the list of a field whose JSON :func:`primitive` gave; else the value.

    A section in a field is a mapping.
    """
    origin = typing.get_origin(annotation)
    kinds = {typing.get_origin(each) or each for each in typing.get_args(annotation)}
    kinds = kinds if origin in (typing.Union, types.UnionType) else {origin}
    kinds = {dict if is_section(each) else each for each in kinds}
    if not isinstance(value, str) or not kinds & {dict, tuple}:
        return value
    if not kinds & {str, typing.Literal}:  # else a text may be the value itself
        return json.loads(value)
    begins = {dict: "{", tuple: "["}
    is_json = any(value.startswith(begins[kind]) for kind in kinds & {*begins})
    return json.loads(value) if is_json else value
