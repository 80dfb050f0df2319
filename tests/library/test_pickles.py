"""Digests of functions and other objects."""

from __future__ import annotations

import json
import subprocess
import sys

import keras
import pytest

from stagecraft import pickles

SOURCE = """
import math
def outer(k):
    def build(n=3):
        if n in {"a", "b", "c", "d"}:
            return None
        return [math.sqrt(each * k) for each in range(n)]
    return build
"""
PROGRAM = """
import json, sys
from stagecraft import pickles
digests = []
for file, source in enumerate(sys.argv[1:]):
    exec(compile(source, f"/{sys.argv[0]}/{file}.py", "exec"))
    digests.append(pickles.digest(outer(2)))
print(json.dumps(digests))
"""


def _digests(*sources: str) -> list[str]:
    """In a new process, where sets have another order."""
    command = [sys.executable, "-c", PROGRAM, *sources]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(made.stdout)


def test_a_function_keeps_its_digest_in_another_place_and_process():
    moved = "# moved" + SOURCE
    others = [SOURCE.replace(*each) for each in (("* k", "+ k"), ('"d"', '"e"'), ("n=3", "n=4"))]
    first, second, *different = _digests(SOURCE, moved, *others)
    assert first == second == _digests(moved)[0]
    assert len({first, *different}) == 4


def test_what_a_function_encloses_counts():
    def scaled(factor: float):
        return lambda x: factor * x

    assert pickles.digest(scaled(2.0)) == pickles.digest(scaled(2.0))
    assert pickles.digest(scaled(2.0)) != pickles.digest(scaled(3.0))


def test_an_object_with_a_configuration_has_the_digest_of_this():
    one, same, other = (keras.regularizers.L2(factor) for factor in (1.0, 1.0, 2.0))
    assert pickles.digest(one) == pickles.digest(same) != pickles.digest(other)


def test_what_cannot_be_serialized_has_its_own_digest():
    values = [(each for each in ()), (each for each in ())]
    with pytest.raises(TypeError):
        __import__("pickle").dumps(values[0])
    assert pickles.digest(values[0]) != pickles.digest(values[1])
