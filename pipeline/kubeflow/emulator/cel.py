"""Conditions of tasks, in CEL: ``Condition`` in backend/src/v2/expression/expression.go.

The language is that of github.com/google/cel-spec, without macros over lists, maps, timestamps and
durations. ``&&`` and ``||`` swallow an error where the other side decides, as CEL says.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable
from typing import Any

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow.emulator.values import to_text
from stagecraft.pipeline.kubeflow.linter.rules.conditions import TOKEN
from stagecraft.pipeline.kubeflow.spec import Json

Value = Callable[[Json], Any]
"""Evaluates a part of an expression for the variables."""

_ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}

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
    found = _Parser(expression).parse()({"inputs": variables, "outputs": {}})
    if not isinstance(found, bool):
        raise CelError(f"{expression}: the result is no bool but {found!r}")
    return found


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

    def parse(self) -> Value:
        value = self._either()
        if self._next < len(self._tokens):
            raise CelError(f"CEL cannot parse {self._tokens[self._next][1]!r} in {self._text}")
        return value

    def _either(self) -> Value:
        chosen = self._or()
        if not self._takes("?"):
            return chosen
        first = self._or()
        self._needs(":")
        second = self._either()
        return lambda given: (first if _bool(chosen(given)) else second)(given)

    def _or(self) -> Value:
        return self._decides("||", self._and, decisive=True)

    def _and(self) -> Value:
        return self._decides("&&", lambda: self._binary(0), decisive=False)

    def _decides(self, sign: str, parse: Callable[[], Value], *, decisive: bool) -> Value:
        parts = [parse()]
        while self._takes(sign):
            parts.append(parse())
        if len(parts) == 1:
            return parts[0]

        def value(given: Json) -> bool:
            error = None
            for part in parts:
                try:
                    if _bool(part(given)) is decisive:
                        return decisive
                except CelError as found:
                    error = found
            if error is not None:
                raise error
            return not decisive

        return value

    def _binary(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            compute = _LEVELS[level][self._take()]
            left = self._applied(compute, left, self._binary(level + 1))
        return left

    @staticmethod
    def _applied(compute: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
        return lambda given: compute(left(given), right(given))

    @staticmethod
    def _field_of(whole: Value, name: str) -> Value:
        return lambda given: _field(whole(given), name)

    def _unary(self) -> Value:
        if self._takes("!"):
            inner = self._unary()
            return lambda given: not _bool(inner(given))
        if self._takes("-"):
            inner = self._unary()
            return lambda given: _arithmetic("-", 0 * _number(inner(given)), inner(given))
        return self._member()

    def _member(self) -> Value:
        value = self._primary()
        while True:
            if self._takes("."):
                name = self._take()
                if self._takes("("):
                    value = self._call(name, [value, *self._arguments(")")])
                else:
                    value = self._field_of(value, name)
            elif self._takes("["):
                [index] = self._arguments("]")
                value = self._applied(_item, value, index)
            else:
                return value

    def _primary(self) -> Value:
        if self._next == len(self._tokens):
            raise CelError(f"CEL cannot parse {self._text}: it ends too early")
        kind, text = self._tokens[self._next]
        self._next += 1
        if kind == "number":
            number = _literal(text)
            return lambda given: number
        if kind == "text":
            plain = _ESCAPED.sub(_unescaped, text[1:-1])
            return lambda given: plain
        if text == "(":
            inner = self._either()
            self._needs(")")
            return inner
        if text == "[":
            parts = self._arguments("]")
            return lambda given: [part(given) for part in parts]
        if kind != "name":
            raise CelError(f"CEL cannot parse {text!r} in {self._text}")
        if text in ("true", "false", "null"):
            constant = {"true": True, "false": False, "null": None}[text]
            return lambda given: constant
        if self._takes("("):
            return self._call(text, self._arguments(")"))
        return lambda given: _field(given, text)

    def _arguments(self, end: str) -> list[Value]:
        found: list[Value] = []
        while not self._takes(end):
            if found:
                self._needs(",")
            found.append(self._either())
        return found

    def _call(self, name: str, arguments: list[Value]) -> Value:
        if name == "has":
            return lambda given: _has(arguments[0], given)
        function = _FUNCTIONS.get((name, len(arguments)))
        if function is None:
            raise UserError(
                f"The emulator does not know {name}() of CEL: {self._text}",
                value=self._text,
                suggestion=", ".join(sorted({known for known, _ in _FUNCTIONS})),
            )
        return lambda given: function(*(argument(given) for argument in arguments))

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


def _literal(text: str) -> int | float:
    if text.endswith("u"):
        return int(text[:-1])
    return int(text) if text.isdigit() else float(text)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROL.get(code, code)


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


def _has(part: Value, given: Json) -> bool:
    try:
        part(given)
    except CelError:
        return False
    return True


def _to_int(value: Any) -> int:
    try:
        return int(value if not isinstance(value, str) else int(value))
    except (TypeError, ValueError, OverflowError):
        raise _overload("int()", value) from None


def _to_double(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise _overload("double()", value) from None


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


_FUNCTIONS: dict[tuple[str, int], Callable[..., Any]] = {
    ("int", 1): _to_int,
    ("double", 1): _to_double,
    ("string", 1): to_text,
    ("bool", 1): lambda value: value == "true" if isinstance(value, str) else _bool(value),
    ("dyn", 1): lambda value: value,
    ("size", 1): _size,
    ("parseJson", 1): _parse_json,
    ("contains", 2): _of_texts(lambda text, part: part in text),
    ("startsWith", 2): _of_texts(str.startswith),
    ("endsWith", 2): _of_texts(str.endswith),
    ("matches", 2): _of_texts(lambda text, part: re.search(part, text) is not None),
}
"""Functions and methods by name and number of arguments, a method's object included."""
