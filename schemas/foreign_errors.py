"""Messages of other libraries in one short line, without terminal codes and tensor values.

Keras colours its messages, TensorFlow prints the values of tensors, and both write paragraphs.
"""

from __future__ import annotations

import re

from stagecraft.schemas.plain_text import plain

LIMIT = 600  # most characters of a message; the log has the rest
_MOST = 20_000  # most characters that are processed
_PRINTED = re.compile(r"tf\.Tensor\((?!shape=)[^()]*?,? ?(shape=\([^)]*\), dtype=\w+)\)")
_SHOWN = re.compile(r",? numpy=(?:array\([^()]*\)|[^>]*)>")
_ARRAY = re.compile(r"\barray\((\[[^()]*\])(?:, shape=\([^)]*\))?(?:, dtype=([^)]*))?\)")
_NUMBERS = re.compile(r"\[(?:\[[][\s\d.,+\-einfaj]{0,4000}\]|[\s\d.,+\-einfaj]{30,4000})\]")
"""Nested lists of numbers, and long flat ones."""


def said(error: BaseException) -> str:
    """The type of an exception, and its message: ``ValueError: one line``."""
    return f"{type(error).__name__}: {cleaned(str(error)) or 'no message'}"


def cleaned(text: str, limit: int = LIMIT) -> str:
    """A message of another library in one line, of at most ``limit`` characters.

    It has no terminal and control characters, and shape and dtype in place of tensors and arrays.
    """
    text = " ".join(plain(text[:_MOST]).split())
    text = _PRINTED.sub(r"tf.Tensor(\1)", text)
    text = _SHOWN.sub(">", text)
    text = _ARRAY.sub(
        lambda found: f"array(shape={_shape(found[1])}, dtype={found[2] or _dtype(found[1])})", text
    )
    text = _NUMBERS.sub(lambda found: f"[values of shape {_shape(found[0])}]", text)
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _dtype(values: str) -> str:
    """The default dtype of such values, which NumPy does not print."""
    if "True" in values or "False" in values:
        return "bool"
    return "float64" if re.search(r"[.naif]", values.replace("...", "")) else "int64"


def _shape(values: str) -> str:
    """Shape of nested lists, from the first list of each depth; ``?`` for omitted values."""
    found: dict[int, str] = {}
    counts: list[int] = []
    gaps: set[int] = set()
    for token in re.findall(r"\[|\]|\.\.\.|[^\s,\[\]]+", values):
        if token == "[":
            if counts:
                counts[-1] += 1
            counts.append(0)
        elif token == "]" and counts:
            depth, count = len(counts), counts.pop()
            found.setdefault(depth, "?" if depth in gaps else str(count))
        elif token == "...":
            gaps.add(len(counts))
        elif counts:
            counts[-1] += 1
    sizes = [found[depth] for depth in sorted(found)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
