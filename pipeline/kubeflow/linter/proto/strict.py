"""Reads a message as Go's protojson does: refuses unknown fields, wrong types and two of a oneof.

Returns the message with keys in lower camel case (protojson also accepts snake case) and without
nulls, which mean "not set". Collects all errors with their locations;
``google.protobuf.json_format`` stops at the first error and gives no location.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from stagecraft.pipeline.kubeflow.linter.proto.messages import ENUMS, ONE_OF

_DURATION = re.compile(r"-?\d+(\.\d{1,9})?s")


class Wrong(NamedTuple):
    """A part of a message that does not match the proto."""

    location: str
    problem: str
    unknown: bool
    """Whether the field does not exist: some readers ignore it. No reader ignores other errors."""


class Reader:
    """Reads messages of one table; collects what is wrong."""

    def __init__(self, table: dict[str, dict[str, str]]):
        self._table = table
        self.wrong: list[Wrong] = []

    def read(self, kind: str, value: Any, location: str = "") -> Any:
        """The value as one of ``kind``, without wrong parts, which are recorded."""
        if kind in self._table:
            return self._message(kind, value, location)
        if kind[0] == "[":
            return self._list(kind[1:-1], value, location)
        if kind[0] == "{":
            return self._map(kind[1:-1], value, location)
        if kind == "Value":
            return value
        if kind == "Struct":
            return self._map("Value", value, location)
        if kind in ENUMS:
            return self._enum(kind, value, location)
        return self._scalar(kind, value, location)

    def _refuse(self, location: str, what: str, *, unknown: bool = False) -> None:
        self.wrong.append(Wrong(location, what, unknown))

    def _message(self, kind: str, value: Any, location: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._refuse(location, f"expected fields of {kind}, not {_shown(value)}")
            return {}
        fields = self._table[kind]
        result: dict[str, Any] = {}
        for key, item in value.items():
            # protojson accepts a field's JSON name and its proto name.
            name = key if key in fields else _camel(str(key)) if _SNAKE.fullmatch(str(key)) else key
            if name not in fields:
                self._refuse(_join(location, key), f"{kind} has no field {key!r}", unknown=True)
            elif name in result:
                self._refuse(_join(location, key), f"{name} is a duplicate")
            elif item is not None or fields[name] == "Value":
                result[name] = self.read(fields[name], item, _join(location, key))
        given = [name for name in ONE_OF.get(kind, ()) if name in result]
        if len(given) > 1:
            self._refuse(location, f"{kind} has one of {' and '.join(given)}, not both")
        return result

    def _list(self, kind: str, value: Any, location: str) -> list[Any]:
        if not isinstance(value, list):
            self._refuse(location, f"expected a list, not {_shown(value)}")
            return []
        return [self.read(kind, item, f"{location}[{index}]") for index, item in enumerate(value)]

    def _map(self, kind: str, value: Any, location: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._refuse(location, f"expected a mapping, not {_shown(value)}")
            return {}
        result = {}
        for key, item in value.items():
            if isinstance(key, str):
                result[key] = self.read(kind, item, _join(location, key))
            else:
                self._refuse(location, f"the key {key!r} is not text")
        return result

    def _enum(self, kind: str, value: Any, location: str) -> str:
        names = ENUMS[kind]
        if isinstance(value, str) and value in names:
            return value
        if type(value) is int and 0 <= value < len(names):
            return names[value]
        self._refuse(location, f"{value!r} is none of {', '.join(names)}")
        return names[0]

    def _scalar(self, kind: str, value: Any, location: str) -> Any:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kind == "string" and isinstance(value, str):
            return value
        if kind == "bool" and isinstance(value, bool):
            return value
        if kind == "int" and (number or isinstance(value, str)):
            try:
                if float(value).is_integer():
                    return int(value)
            except (ValueError, OverflowError):
                pass
        if kind == "double" and (number or isinstance(value, str)):
            try:
                return float(value)
            except (ValueError, OverflowError):
                pass
        if kind == "Duration" and isinstance(value, str) and _DURATION.fullmatch(value):
            return value
        expected = {
            "string": "text",
            "bool": "true or false",
            "int": "a whole number",
            "double": "a number",
            "Duration": 'a duration such as "30s"',
        }[kind]
        self._refuse(location, f"expected {expected}, not {_shown(value)}")
        return {"string": "", "bool": False, "int": 0, "double": 0.0, "Duration": "0s"}[kind]


_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _join(location: str, key: object) -> str:
    return f"{location}.{key}" if location else str(key)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else repr(value)
