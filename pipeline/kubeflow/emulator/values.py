"""Values as the backend and Kubernetes convert them: protobuf's Values, Go's JSON, variables."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.linter.rules.values import VARIABLE
from stagecraft.pipeline.kubeflow.spec import Json

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_DOUBLE = re.compile(
    r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)


class ValueProblem(ValueError):
    """A value that the backend does not accept."""


def to_text(value: Any) -> str:
    """``PbValueToText``, backend/src/v2/metadata/converter.go."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if specs.type_of(value) == "NUMBER_DOUBLE":
        return _number(float(value), exponents=False)
    return go_json(value)


def go_json(value: Any) -> str:
    """JSON as Go's ``json.Marshal`` writes it: sorted keys, no blanks, escaped HTML."""
    if specs.type_of(value) == "NUMBER_DOUBLE":
        return _number(float(value), exponents=True)
    if isinstance(value, list):
        return "[" + ",".join(map(go_json, value)) + "]"
    if isinstance(value, dict):
        items = (f"{go_json(key)}:{go_json(item)}" for key, item in sorted(value.items()))
        return "{" + ",".join(items) + "}"
    text = json.dumps(value, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def from_text(text: str, kind: str) -> Any:
    """``TextToPbValue``, backend/src/v2/metadata/converter.go.

    Raises:
        ValueProblem: the text is no value of this parameter type.
    """
    plain = text.strip()
    if kind == "STRING":
        return text
    if kind == "NUMBER_INTEGER" and re.fullmatch(r"[+-]?[0-9]+", plain):
        if -(2**63) <= int(plain) < 2**63:
            return float(plain)
    elif kind == "NUMBER_DOUBLE" and _DOUBLE.fullmatch(plain):
        return float(plain)
    elif kind == "BOOLEAN" and plain in (*_TRUE, *_FALSE):
        return plain in _TRUE
    elif kind in ("LIST", "STRUCT"):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, list if kind == "LIST" else dict):
            return specs.doubles(value)
    raise ValueProblem(f"{text!r} is no {kind}")


def stored_metadata(metadata: Json) -> Json:
    """Metadata as ML Metadata returns it: ``StructValueToMLMDValue`` in converter.go.

    Raises:
        ValueProblem: a value is null.
    """

    def stored(name: str, value: Any) -> Any:
        if value is None:
            raise ValueProblem(f"the metadata {name!r} is null")
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, (list, dict)):
            return {"list" if isinstance(value, list) else "struct": value}
        return value

    return {name: stored(name, value) for name, value in metadata.items()}


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Kubernetes' expansion of ``$(NAME)`` and ``$$`` in a container's command and arguments.

    third_party/forked/golang/expansion/expand.go in kubernetes/kubernetes.
    """

    def replace(match: re.Match[str]) -> str:
        return "$" if match[1] is None else variables.get(match[1], match[0])

    return VARIABLE.sub(replace, text)


def _number(value: float, *, exponents: bool) -> str:
    """``strconv.FormatFloat``; with exponents as encoding/json writes them."""
    if not math.isfinite(value):
        raise ValueProblem(f"{value} is not finite")
    size = abs(value)
    if exponents and size and (size < 1e-6 or size >= 1e21):
        mantissa, _, exponent = repr(value).partition("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}" if exponent else repr(value)
    return str(int(value)) if value.is_integer() else f"{Decimal(repr(value)):f}"
