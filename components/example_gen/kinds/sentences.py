"""A small generated text for a first run without network: sentences of a grammar.

Subject and verb agree in number across the words between them, quotes close, and a pronoun has the
gender of the name before it. So there is something to learn at each distance.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

_NAMES = {"she": ("anna", "mira", "lena"), "he": ("otto", "paul", "emil")}
_NOUNS = ("cat", "dog", "bird", "horse", "child", "king", "ship", "tree")
_ADJECTIVES = ("small", "old", "red", "quiet", "young", "tired")
_PLACES = ("near the river", "in the house", "under the bridge", "behind the hill")
_VERBS = ("sees", "likes", "follows", "finds", "knows", "waits for")
_SEED = 11


def text(seed: int = _SEED) -> Iterator[str]:
    """Yields sentences without end; the same for the same seed."""
    draw = random.Random(seed)
    while True:
        yield f"{draw.choice((_plain, _told, _named))(draw)}."


def _plural(noun: str) -> str:
    return {"child": "children"}.get(noun, f"{noun}s")


def _phrase(draw: random.Random) -> tuple[str, bool]:
    """A noun with its attributes, and whether it is plural."""
    many, noun = draw.random() < 0.5, draw.choice(_NOUNS)
    words = ["the", *draw.sample(_ADJECTIVES, draw.choice((0, 0, 1, 2)))]
    words.append(_plural(noun) if many else noun)
    if draw.random() < 0.3:
        words.append(draw.choice(_PLACES))
    return " ".join(words), many


def _verb(draw: random.Random, many: bool) -> str:
    first, *rest = draw.choice(_VERBS).split()
    return " ".join([first.removesuffix("s") if many else first, *rest])


def _plain(draw: random.Random) -> str:
    subject, many = _phrase(draw)
    return f"{subject} {_verb(draw, many)} {_phrase(draw)[0]}"


def _told(draw: random.Random) -> str:
    name = draw.choice(_NAMES["she"] + _NAMES["he"])
    return f'{name} says "{_plain(draw)}"'


def _named(draw: random.Random) -> str:
    pronoun = draw.choice(tuple(_NAMES))
    name = draw.choice(_NAMES[pronoun])
    first, second = _phrase(draw)[0], _phrase(draw)[0]
    return f"{name} {_verb(draw, False)} {first} and {pronoun} {_verb(draw, False)} {second}"
