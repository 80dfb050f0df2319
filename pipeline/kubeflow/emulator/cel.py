"""Conditions of tasks, in CEL: ``Condition`` in backend/src/v2/expression/expression.go.

The language is that of github.com/google/cel-spec, without macros over lists, bytes, timestamps and
durations. As cel-go does, the types are checked before anything is evaluated. ``&&`` and ``||``
swallow an error of the evaluation where the other side decides, as CEL says.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow.emulator.values import ValueProblem, from_text
from stagecraft.pipeline.kubeflow.linter.rules.conditions import MACROS, TOKEN
from stagecraft.pipeline.kubeflow.spec import Json

Value = Callable[[Json], Any]
"""Evaluates a part of an expression for the variables."""

Type = str | tuple[str, "Type"]
"""``int``, ``dyn`` (known only from the value), a message, or ``list`` or ``map`` with the type of
its values; keys are texts."""


class Part(NamedTuple):
    """A part of an expression."""

    type: Type
    value: Value
    selected: tuple[Value, str] | None = None
    """Of ``whole.name``: the whole, and the name."""


_VARIABLES: dict[str, Type] = {"inputs": "Inputs", "outputs": "dyn"}
_MESSAGES: dict[str, dict[str, Type]] = {
    "Inputs": {"parameter_values": ("map", "dyn"), "artifacts": ("map", "ArtifactList")},
    "ArtifactList": {"artifacts": ("list", "Artifact")},
    "Artifact": {
        "name": "string",
        "uri": "string",
        "type": "dyn",
        "properties": ("map", "dyn"),
        "custom_properties": ("map", "dyn"),
        "metadata": ("map", "dyn"),
    },
}
"""Fields of ``ExecutorInput.Inputs`` and its parts in pipeline_spec.proto, with their types."""

_CONSTANTS: dict[str, tuple[Type, Any]] = {
    "true": ("bool", True),
    "false": ("bool", False),
    "null": ("null", None),
}

_ESCAPED = re.compile(
    r"\\(?:([xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CONTROL |= {sign: sign for sign in "\\?\"'`"}

_NUMBERS = {"int", "uint", "double"}
_OPERANDS = {
    **dict.fromkeys(("<", "<=", ">", ">="), _NUMBERS | {"bool", "string"}),
    "+": _NUMBERS | {"string", "list"},
    **dict.fromkeys("-*/", _NUMBERS),
    "%": {"int", "uint"},
}
"""Types of the operands, of which both have the same."""

_LEVELS: tuple[dict[str, Callable[[Any, Any], Any]], ...] = (
    {
        "==": lambda a, b: _equal(a, b),
        "!=": lambda a, b: not _equal(a, b),
        "<": lambda a, b: _ordered(operator.lt, a, b),
        "<=": lambda a, b: _ordered(operator.le, a, b),
        ">": lambda a, b: _ordered(operator.gt, a, b),
        ">=": lambda a, b: _ordered(operator.ge, a, b),
        "in": lambda a, b: _contains(b, a),
    },
    {"+": lambda a, b: _sum(a, b), "-": lambda a, b: _arithmetic("-", a, b)},
    {
        "*": lambda a, b: _arithmetic("*", a, b),
        "/": lambda a, b: _arithmetic("/", a, b),
        "%": lambda a, b: _arithmetic("%", a, b),
    },
)
"""Operators of two values, from the weakest."""


class CelError(ValueError):
    """An expression that CEL cannot parse or evaluate; the driver fails."""


def condition(expression: str, inputs: Json) -> bool:
    """Whether a task with this condition runs.

    Args:
        expression: in CEL.
        inputs: ``ExecutorInput.inputs`` of the task.

    Raises:
        CelError: the driver of the task would fail.
        UserError: the expression uses a part of CEL that this module lacks.
    """
    variables = {
        "parameter_values": inputs["parameterValues"],
        "artifacts": inputs["artifacts"],
    }
    found = _Parser(expression).parse().value({"inputs": variables, "outputs": {}})
    if not isinstance(found, bool):
        raise CelError(f"{expression}: the result is no bool but {found!r}")
    return found


def _base(kind: Type) -> str:
    return kind if isinstance(kind, str) else kind[0]


def _fit(one: Type, other: Type) -> bool:
    """Whether values of two types may be of the same type."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return one[0] == other[0] and _fit(one[1], other[1])
    return one == other or "dyn" in (one, other)


def _result(sign: str, left: Type, right: Type) -> Type:
    """The type of an operator's result; raises if CEL has no such operator."""
    if sign == "in":
        whole, part = (right, "dyn") if isinstance(right, str) else right
        fits = whole in ("dyn", "list", "map") and _fit(left, "string" if whole == "map" else part)
        kind: Type = "bool"
    else:
        kind = right if left == "dyn" else left
        allowed = _OPERANDS.get(sign)
        fits = _fit(left, right) and (allowed is None or _base(kind) in allowed | {"dyn"})
        kind = kind if sign in ("+", "-", "*", "/", "%") else "bool"
    if not fits:
        raise _no_overload(sign, left, right)
    return kind


def _needs(what: str, part: Part, *types: str) -> None:
    if _base(part.type) not in (*types, "dyn"):
        raise _no_overload(what, part.type)


def _no_overload(what: str, *types: Type) -> CelError:
    return CelError(f"CEL has no {what} for the types {', '.join(map(_base, types))}")


class _Parser:
    """A parser by recursive descent; each method parses what binds stronger than its caller."""

    def __init__(self, text: str):
        self._text, self._tokens, self._next = text, list[tuple[str, str]](), 0
        position, text = 0, text.rstrip()
        while position < len(text):
            token = TOKEN.match(text, position)
            if token is None:
                raise CelError(f"CEL cannot parse {text[position:].strip()[:20]!r}")
            kind = str(token.lastgroup)
            self._tokens.append((kind, token[kind]))
            position = token.end()

    def parse(self) -> Part:
        part = self._either()
        if self._next < len(self._tokens):
            raise CelError(f"CEL cannot parse {self._tokens[self._next][1]!r} in {self._text}")
        return part

    def _either(self) -> Part:
        chosen = self._or()
        if not self._takes("?"):
            return chosen
        _needs("?", chosen, "bool")
        first = self._or()
        self._needs(":")
        second = self._either()
        if not _fit(first.type, second.type):
            raise _no_overload("?", first.type, second.type)
        kind = first.type if first.type == second.type else "dyn"
        return Part(
            kind,
            lambda given: (first if _bool(chosen.value(given)) else second).value(given),
        )

    def _or(self) -> Part:
        return self._decides("||", self._and, decisive=True)

    def _and(self) -> Part:
        return self._decides("&&", lambda: self._binary(0), decisive=False)

    def _decides(self, sign: str, parse: Callable[[], Part], *, decisive: bool) -> Part:
        parts = [parse()]
        while self._takes(sign):
            parts.append(parse())
        if len(parts) == 1:
            return parts[0]
        for part in parts:
            _needs(sign, part, "bool")

        def value(given: Json) -> bool:
            error = None
            for part in parts:
                try:
                    if _bool(part.value(given)) is decisive:
                        return decisive
                except CelError as found:
                    error = found
            if error is not None:
                raise error
            return not decisive

        return Part("bool", value)

    def _binary(self, level: int) -> Part:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            sign = self._take()
            right = self._binary(level + 1)
            kind = _result(sign, left.type, right.type)
            left = self._applied(kind, _LEVELS[level][sign], left, right)
        return left

    @staticmethod
    def _applied(kind: Type, compute: Callable[..., Any], *parts: Part) -> Part:
        return Part(kind, lambda given: compute(*(part.value(given) for part in parts)))

    @staticmethod
    def _field_of(whole: Part, name: str) -> Part:
        if isinstance(whole.type, tuple) and whole.type[0] == "map":
            kind = whole.type[1]
        elif whole.type == "dyn":
            kind = "dyn"
        elif name in _MESSAGES.get(_base(whole.type), ()):
            kind = _MESSAGES[_base(whole.type)][name]
        else:
            raise CelError(f"CEL finds no field {name!r} of the type {_base(whole.type)}")
        return Part(kind, lambda given: _field(whole.value(given), name), (whole.value, name))

    def _unary(self) -> Part:
        if self._takes("!"):
            inner = self._unary()
            _needs("!", inner, "bool")
            return self._applied("bool", lambda value: not _bool(value), inner)
        if self._takes("-"):
            inner = self._unary()
            _needs("-", inner, "int", "double")
            return self._applied(
                inner.type, lambda value: _arithmetic("-", 0 * _number(value), value), inner
            )
        return self._member()

    def _member(self) -> Part:
        part = self._primary()
        while True:
            if self._takes("."):
                name = self._take()
                part = self._call(name, part) if self._takes("(") else self._field_of(part, name)
            elif self._takes("["):
                [index] = self._arguments("]")
                _needs("[]", part, "list", "map")
                if part.type != "dyn":
                    _needs("[]", index, "int" if _base(part.type) == "list" else "string")
                kind = part.type[1] if isinstance(part.type, tuple) else "dyn"
                part = self._applied(kind, _item, part, index)
            else:
                return part

    def _primary(self) -> Part:
        if self._next == len(self._tokens):
            raise CelError(f"CEL cannot parse {self._text}: it ends too early")
        kind, text = self._tokens[self._next]
        self._next += 1
        if kind == "number":
            return _literal(text)
        if kind == "text":
            plain = text[2:-1] if text[0] in "rR" else _ESCAPED.sub(_unescaped, text[1:-1])
            return Part("string", lambda given: plain)
        if text == "(":
            inner = self._either()
            self._needs(")")
            return inner
        if text == "[":
            parts = self._arguments("]")
            types = {part.type for part in parts}
            of_parts = types.pop() if len(types) == 1 else "dyn"
            return self._applied(("list", of_parts), lambda *values: [*values], *parts)
        if text == "{":
            raise self._lacks("a map in braces")
        if kind != "name":
            raise CelError(f"CEL cannot parse {text!r} in {self._text}")
        if text in _CONSTANTS:
            of_constant, constant = _CONSTANTS[text]
            return Part(of_constant, lambda given: constant)
        if self._takes("("):
            return self._call(text)
        following = [kind for kind, _ in self._tokens[self._next : self._next + 1]]
        if following == ["text"] and {*text.lower()} <= {*"rb"}:
            raise self._lacks("bytes")
        if text not in _VARIABLES:
            raise CelError(f"CEL does not know {text!r} in {self._text}")
        return Part(_VARIABLES[text], lambda given: given[text])

    def _arguments(self, end: str) -> list[Part]:
        found: list[Part] = []
        while not self._takes(end):
            if found:
                self._needs(",")
            found.append(self._either())
        return found

    def _call(self, name: str, *whole: Part) -> Part:
        """A call after its opening bracket; ``whole``: the object of a method."""
        if name == "has" and not whole:
            [part, *more] = self._arguments(")") or [Part("dyn", _never)]
            if part.selected is None or more:
                raise CelError(f"CEL takes only has(WHOLE.FIELD), and not {self._text}")
            of, field = part.selected
            return Part("bool", lambda given: _has(of(given), field))
        known = _METHODS if whole else _FUNCTIONS
        if name in MACROS or name not in known:
            raise self._lacks(f"{name}()", ", ".join(sorted({*_FUNCTIONS, *_METHODS})))
        types, kind, compute = known[name]
        parts = [*whole, *self._arguments(")")]
        if len(parts) != len(types):
            raise _no_overload(f"{name}()", *(part.type for part in parts))
        for part, allowed in zip(parts, types, strict=True):
            _needs(f"{name}()", part, *allowed)
        return self._applied(kind, compute, *parts)

    def _lacks(
        self, what: str, known: str = "comparisons, logic, arithmetic and lists"
    ) -> UserError:
        return UserError(
            f"The emulator does not know {what} of CEL: {self._text}",
            value=self._text,
            suggestion=known,
        )

    def _peek(self) -> str:
        kind, text = self._tokens[self._next] if self._next < len(self._tokens) else ("", "")
        return "" if kind == "text" else text

    def _take(self) -> str:
        text = self._peek()
        if not text:
            raise CelError(f"CEL cannot parse {self._text}: it ends too early")
        self._next += 1
        return text

    def _takes(self, sign: str) -> bool:
        found = self._peek() == sign
        self._next += found
        return found

    def _needs(self, sign: str) -> None:
        if not self._takes(sign):
            raise CelError(f"CEL cannot parse {self._text}: {sign!r} is missing")


def _literal(text: str) -> Part:
    plain, base = text.rstrip("uU"), 16 if text[:2] in ("0x", "0X") else 10
    if base == 16 or plain.isdigit():
        number = int(plain, base)
        return Part("int" if plain == text else "uint", lambda given: number)
    double = float(plain)
    return Part("double", lambda given: double)


def _unescaped(match: re.Match[str]) -> str:
    code, octal, sign = match.groups()
    if code or octal:
        return chr(int(code[1:], 16) if code else int(octal, 8))
    if sign not in _CONTROL:
        raise CelError(f"CEL cannot parse the escape {match[0]!r} in a text")
    return _CONTROL[sign]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _overload(what: str, *values: Any) -> CelError:
    return CelError(f"CEL has no {what} for {', '.join(map(repr, values))}")


def _number(value: Any) -> Any:
    if not _is_number(value):
        raise _overload("number", value)
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _overload("logic", value)
    return value


def _equal(left: Any, right: Any) -> bool:
    """Numbers of different types may be equal; values of other types are not."""
    if _is_number(left) and _is_number(right):
        return bool(left == right)
    return type(left) is type(right) and bool(left == right)


def _ordered(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    if (_is_number(left) and _is_number(right)) or (
        type(left) is type(right) and isinstance(left, (str, bool))
    ):
        return compare(left, right)
    raise _overload("order", left, right)


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, list):
        return any(_equal(part, each) for each in whole)
    if isinstance(whole, dict):
        return part in whole
    raise _overload("in", part, whole)


def _sum(left: Any, right: Any) -> Any:
    if type(left) is type(right) and isinstance(left, (str, list)):
        return left + right
    return _arithmetic("+", left, right)


def _arithmetic(sign: str, left: Any, right: Any) -> Any:
    """Integers and doubles do not mix."""
    if not _is_number(left) or type(left) is not type(right):
        raise _overload(sign, left, right)
    if sign in "+-*":
        return {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](left, right)
    if isinstance(left, float):
        if sign == "%":
            raise _overload(sign, left, right)
        return left / right if right else math.copysign(math.inf, left) if left else math.nan
    if not right:
        raise CelError("CEL cannot divide by 0")
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if sign == "/" else left - quotient * right


def _field(whole: Any, name: str) -> Any:
    if isinstance(whole, dict) and name in whole:
        return whole[name]
    raise CelError(f"CEL finds no {name!r}")


def _item(whole: Any, index: Any) -> Any:
    if isinstance(whole, list) and _is_number(index) and index == int(index):
        if 0 <= index < len(whole):
            return whole[int(index)]
        raise CelError(f"CEL finds no element {index}")
    return _field(whole, index)


def _never(given: Json) -> Any:
    raise CelError("CEL cannot evaluate nothing")


def _has(whole: Any, name: str) -> bool:
    """Whether a map has a key; a text of a message is unset if it is empty."""
    if not isinstance(whole, dict):
        raise _overload("has()", whole)
    return name in whole and whole[name] != ""


def _to_int(value: Any) -> int:
    try:
        return int(value if isinstance(value, str) else _number(value))
    except (ValueError, OverflowError):
        raise _overload("int()", value) from None


def _to_double(value: Any) -> float:
    try:
        return float(value if isinstance(value, str) else _number(value))
    except ValueError:
        raise _overload("double()", value) from None


def _to_bool(value: Any) -> bool:
    try:
        return bool(from_text(value, "BOOLEAN")) if isinstance(value, str) else _bool(value)
    except ValueProblem:
        raise _overload("bool()", value) from None


def _to_string(value: Any) -> str:
    """Text of a value; of a double, that of Go's ``strconv.FormatFloat(value, 'g', -1, 64)``."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if not _is_number(value):
        raise _overload("string()", value)
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    number = Decimal(repr(value)).normalize()
    if not value or -4 <= number.adjusted() < 6:
        return f"{number:f}"
    mantissa, exponent = f"{number:e}".split("e")
    return f"{mantissa}e{exponent[0]}{exponent[1:]:0>2}"


def _parse_json(value: Any) -> Any:
    try:
        return json.loads(value, parse_int=float)
    except (TypeError, ValueError) as error:
        raise CelError(f"parseJson fails: {error}") from None


def _of_texts(compute: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def checked(text: Any, part: Any) -> bool:
        if not (isinstance(text, str) and isinstance(part, str)):
            raise _overload("text", text, part)
        return compute(text, part)

    return checked


def _size(value: Any) -> int:
    if isinstance(value, (str, list, dict)):
        return len(value)
    raise _overload("size()", value)


_TEXT, _SCALAR = ("string",), ("int", "uint", "double", "string")
_Function = tuple[tuple[tuple[str, ...], ...], str, Callable[..., Any]]
"""The types that each argument may have, the type of the result, and the function."""

_SIZE: _Function = ((("string", "list", "map"),), "int", _size)
_MATCHES: _Function = (
    (_TEXT, _TEXT),
    "bool",
    _of_texts(lambda text, part: re.search(part, text) is not None),
)
_FUNCTIONS: dict[str, _Function] = {
    "int": ((_SCALAR,), "int", _to_int),
    "double": ((_SCALAR,), "double", _to_double),
    "string": (((*_SCALAR, "bool"),), "string", _to_string),
    "bool": ((("bool", "string"),), "bool", _to_bool),
    "dyn": (
        ((*_SCALAR, "bool", "null", "list", "map", *_MESSAGES),),
        "dyn",
        lambda value: value,
    ),
    "size": _SIZE,
    "parseJson": ((_TEXT,), "dyn", _parse_json),
    "matches": _MATCHES,
}
_METHODS: dict[str, _Function] = {
    "contains": ((_TEXT, _TEXT), "bool", _of_texts(lambda text, part: part in text)),
    "startsWith": ((_TEXT, _TEXT), "bool", _of_texts(str.startswith)),
    "endsWith": ((_TEXT, _TEXT), "bool", _of_texts(str.endswith)),
    "matches": _MATCHES,
    "size": _SIZE,
}
"""Functions by name, and methods, whose first argument is the object."""
