"""YAML as settings have it: a mistake is one sentence, and nothing is read two ways.

PyYAML takes a key that is there twice, reads dates, and raises Python's own errors for a number
of many digits or for brackets nested deeply (https://yaml.org/spec/1.1).
"""

from __future__ import annotations

import pathlib
from typing import Any

import yaml

from stagecraft.schemas import secrets
from stagecraft.schemas.errors import UserError

_TAG = "tag:yaml.org,2002:"

MAX_BYTES = 1_000_000
"""Of a file; all settings there are take less than 20,000."""

MAX_NODES = 100_000
"""Values of a document, counted as often as its aliases repeat them."""

MAX_DEPTH = 50
"""Levels of a document; settings have six."""

_TOO_DEEP = f"brackets or sections are nested in more than {MAX_DEPTH} levels"

_DIGITS = 40
"""Of a number. Settings end at 19."""


class YamlError(UserError):
    """Text that is no YAML, or that settings cannot be."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        """Words it.

        Args:
            reason: what is wrong, and what works.
            line: in the file, from 1; None: not known.
        """
        self.reason, self.line = reason, line
        super().__init__(f"line {line}: {reason}" if line else reason)


class FileError(UserError):
    """A file of settings that cannot be read."""

    def __init__(self, file: str, cause: YamlError) -> None:
        """Names the file.

        Args:
            file: its path.
            cause: what is wrong with it.
        """
        self.file, self.line, self.reason = file, cause.line, cause.reason
        where = f"{file}, line {cause.line}" if cause.line else file
        super().__init__(f"{where}: {cause.reason}")


def read(path: pathlib.Path) -> Any:
    """The value that a file holds; None where it holds none.

    Args:
        path: of the file, in UTF-8.

    Raises:
        OSError: it cannot be read.
        FileError: it is no YAML, or not as :func:`parse` takes it.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    try:
        return parse(_decoded(content))
    except YamlError as error:
        raise FileError(str(path), error) from None


def parse(text: str) -> Any:
    """The value of a text; dates stay text.

    Raises:
        YamlError: it is no YAML; a key is there twice; a number, the nesting or what aliases
            repeat is too large.
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
            f"the character {chr(error.character)!a} cannot be in YAML; take it out", line
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(_reason(error), mark.line + 1 if mark else None) from None
    finally:
        if loader is not None:
            loader.dispose()


def _decoded(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise YamlError(f"is longer than {MAX_BYTES:,} bytes; expected a file of settings")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise YamlError("is in UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"0x{content[error.start]:02x}"
        raise YamlError(f"the byte {found} is not UTF-8; save the file as UTF-8", line) from None


def _reason(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join((error.problem or str(error)).split())
    if isinstance(error, _Refusal):
        return problem
    if "'\\t'" in problem:
        return "not YAML: a tab; use spaces to indent"
    return f"not YAML: {problem}"


class _Refusal(yaml.constructor.ConstructorError):
    """What YAML allows, and settings do not."""

    def __init__(self, reason: str, where: yaml.Mark) -> None:
        super().__init__(None, None, reason, where)


class _Loader(yaml.SafeLoader):
    """Text to values."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """A node of a level that settings can have."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Refusal(_TOO_DEEP, self.peek_event().start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """A value; one that only looks like a number, a truth or a date is refused."""
        if node.tag == f"{_TAG}int" and len(node.value) > _DIGITS:
            raise _Refusal(
                f"a number of {len(node.value):,} digits; a setting holds less than 2^63",
                node.start_mark,
            )
        try:
            return super().construct_object(node, deep=deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            kind = node.tag.removeprefix(_TAG)
            shown = secrets.redact(f"{node.value!r:.60}")
            raise _Refusal(
                f"{shown} is no {kind}; write it in quotes for text", node.start_mark
            ) from None


class _Check:
    """Looks through a document before values are made of it."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()

    def size(self, node: yaml.Node) -> tuple[int, int]:
        """Values in a node, itself included, and levels; what aliases repeat counts each time.

        Raises:
            _Refusal: a key is there twice or is no scalar, aliases repeat too much, or an alias
                stands within what it repeats.
        """
        mark = node.start_mark
        if id(node) in self._open:
            raise _Refusal("an alias stands within what it repeats; write the value out", mark)
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
        return [part for pair in node.value for part in pair]
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
                f"{key.value!r} is there twice, also in line {line}; keep one of them",
                key.start_mark,
            )
        lines[key.tag, key.value] = key.start_mark.line + 1


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
