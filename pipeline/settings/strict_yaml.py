"""Strict YAML for settings: an error is one sentence, and no value is ambiguous."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import yaml

from stagecraft.common import secrets
from stagecraft.common.errors import UserError

_TAG = "tag:yaml.org,2002:"

MAX_BYTES = 1_000_000
"""The largest file; all settings together need less than 20,000."""

MAX_NODES = 100_000
"""The maximum number of values in a document; each repetition by an alias counts."""

MAX_DEPTH = 50
"""The deepest document; settings have six levels."""

_TOO_DEEP = f"brackets or sections are nested deeper than {MAX_DEPTH} levels"

_DIGITS = 40
"""The longest number. Settings need at most 19 digits."""


class SettingsError(UserError):
    """Wrong settings; the message names the setting, its value and what works."""


class YamlError(UserError):
    """Text that is no YAML, or no settings."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        self.reason, self.line = reason, line
        where = f"line {line}" if line else ""
        super().__init__(f"{where}: {reason}" if where else reason, record=where)


class FileError(SettingsError):
    """A file of settings that is no YAML, or no settings."""

    def __init__(self, file: str, cause: YamlError) -> None:
        self.line, self.reason = cause.line, cause.reason
        where = f"{file}, line {cause.line}" if cause.line else file
        super().__init__(f"{where}: {cause.reason}", file=file, record=cause.record)


def read(path: pathlib.Path) -> Any:
    """Reads a file in UTF-8; None if it is empty. Raises OSError or FileError."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    try:
        return parse(_decoded(content))
    except YamlError as error:
        raise FileError(str(path), error) from None


def parse(text: str) -> Any:
    """Parses a text; dates, and numbers such as 010 and 1:30, stay text.

    Raises:
        YamlError: it is no YAML; it has a duplicate key; a number is too long, nesting too deep,
            or aliases repeat too many values.
    """
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _Check().size(node)
        return loader.construct_document(node)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(
            f"the character {chr(error.character)!a} is not allowed in YAML; remove it", line
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(_reason(error), mark.line + 1 if mark else None) from None
    finally:
        if loader is not None:
            loader.dispose()


def _decoded(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise YamlError(f"is larger than {MAX_BYTES:,} bytes; expected a file of settings")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise YamlError("is in UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"0x{content[error.start]:02x}"
        raise YamlError(f"the byte {byte} is not UTF-8; save the file as UTF-8", line) from None


def _reason(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join((error.problem or str(error)).split())
    if isinstance(error, _Refusal):
        return problem
    if "'\\t'" in problem:
        return "not YAML: a tab; use spaces to indent"
    return f"not YAML: {problem.removeprefix('but ')}"


class _Refusal(yaml.constructor.ConstructorError):
    """Valid YAML that settings do not allow."""

    def __init__(self, reason: str, where: yaml.Mark) -> None:
        super().__init__(None, None, reason, where)


class _Loader(yaml.SafeLoader):
    """Loads values from text."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Composes a node, unless it is nested too deep."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Refusal(_TOO_DEEP, self.peek_event().start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Constructs a value; refuses one that only looks like a number, a boolean or a date."""
        if node.tag == f"{_TAG}int" and len(node.value) > _DIGITS:
            raise _Refusal(
                f"a number with {len(node.value):,} digits; numbers must be less than 2^63",
                node.start_mark,
            )
        try:
            return super().construct_object(node, deep=deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            kind = node.tag.removeprefix(_TAG)
            shown = secrets.redact(f"{node.value!r:.60}")
            raise _Refusal(
                f"{shown} is not a valid {kind}; if it is text, put it in quotes", node.start_mark
            ) from None


class _Check:
    """Checks a document before the loader constructs its values."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()

    def size(self, node: yaml.Node) -> tuple[int, int]:
        """Values and levels of a node, itself included; each repetition by an alias counts."""
        mark = node.start_mark
        if id(node) in self._open:
            raise _Refusal("an alias contains itself; write the value out", mark)
        if id(node) not in self._known:
            self._open.add(id(node))
            inner = [self.size(child) for child in _children(node)]
            self._open.remove(id(node))
            count = 1 + sum(size for size, _ in inner)
            depth = 1 + max((depth for _, depth in inner), default=0)
            if count > MAX_NODES:
                raise _Refusal(f"aliases repeat more than {MAX_NODES:,} values", mark)
            if depth > MAX_DEPTH:
                raise _Refusal(_TOO_DEEP, mark)
            self._known[id(node)] = count, depth
        return self._known[id(node)]


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _check_keys(node: yaml.MappingNode) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _Refusal(
                "a key is a list or a mapping; expected a setting's name", key.start_mark
            )
        if line := lines.get((key.tag, key.value)):
            raise _Refusal(
                f"{key.value!r} is a duplicate of line {line}; keep one of them",
                key.start_mark,
            )
        lines[key.tag, key.value] = key.start_mark.line + 1


_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$")

# YAML 1.1 reads 010 as 8, 0b11 as 3 and 1:30 as 90. Here, they stay text, as dates do.
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, _INT if tag == f"{_TAG}int" else regexp)
        for tag, regexp in resolvers
        if tag != f"{_TAG}timestamp"
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
