"""Generated reviews of a sentence or two, and tokenizers for their words. Imports no TensorFlow.

The label of a review is the opinion of its last sentence. A sentence may be negated, so that words
alone do not tell it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

LABELS = ("negative", "positive")
EXAMPLES = 5000

_THINGS = ("food", "room", "staff", "view", "coffee", "music", "garden", "price")
_OPINIONS = (("bad", "awful", "poor", "sad"), ("good", "great", "fine", "lovely"))
_TIMES = ("", "today", "again", "as always", "this time")
_LINKS = ("but", "and")
_WORDS = sorted(
    {
        *("the", "was", "not", "."),
        *_THINGS,
        *_LINKS,
        *(word for words in _OPINIONS for word in words),
        *(word for time in _TIMES for word in time.split()),
    }
)


def rows() -> Iterator[Mapping[str, Any]]:
    """Yields ``text`` and ``label``; the same each time."""
    draw = random.Random(3)
    for number in range(EXAMPLES):
        sentences = [_sentence(draw) for _ in range(draw.choice((1, 1, 2)))]
        text = f" {draw.choice(_LINKS)} ".join(sentence for sentence, _ in sentences)
        yield {"id": number, "text": f"{text}.", "label": LABELS[sentences[-1][1]]}


def _sentence(draw: random.Random) -> tuple[str, bool]:
    """A sentence, and whether the opinion is positive."""
    good, negated = draw.random() < 0.5, draw.random() < 0.4
    parts = ["the", draw.choice(_THINGS), "was", "not" if negated else ""]
    parts += [draw.choice(_OPINIONS[good]), draw.choice(_TIMES)]
    return " ".join(filter(None, parts)), good != negated


def bert_tokenizer(library: Any) -> Any:
    """WordPiece with a token for each word and letter."""
    letters = sorted({letter for word in _WORDS for letter in word})
    pieces = [*letters, *(f"##{letter}" for letter in letters if letter.isalpha())]
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = dict.fromkeys((*special, *_WORDS, *pieces))
    return library.models.BertTokenizer(vocabulary=list(vocabulary), lowercase=True)


def gpt2_tokenizer(library: Any) -> Any:
    """Byte pairs that make one token of each word, with and without a space before it."""
    merges: dict[str, None] = {}
    for start in ("Ġ", ""):  # GPT-2's letter for a space
        for word in _WORDS:
            text = f"{start}{word}"
            for end in range(1, len(text)):
                merges.setdefault(f"{text[:end]} {text[end]}")
    pieces = [piece for merge in merges for piece in (*merge.split(" "), merge.replace(" ", ""))]
    # KerasHub pads with the id 0, which must not be that of the end.
    tokens = dict.fromkeys((*_byte_letters(), *pieces, "<|endoftext|>"))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return library.models.GPT2Tokenizer(vocabulary=vocabulary, merges=list(merges))


def _byte_letters() -> list[str]:
    """GPT-2's letter for each byte (https://github.com/openai/gpt-2/blob/master/src/encoder.py)."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = (byte for byte in range(256) if byte not in shown)
    return [*map(chr, sorted(shown)), *(chr(256 + place) for place, _ in enumerate(hidden))]
