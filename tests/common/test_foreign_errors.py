"""Messages of other libraries, as people see them."""

from __future__ import annotations

import time

import pytest

from stagecraft.common.errors import LIMIT, cleaned, said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\x1b[1mException encountered\x1b[0m\n\n  why", "Exception encountered why"),
        ("\x1b[38;5;196mred\x1b[m", "red"),
        ("\x1b]0;a title\x07seen \x1b]8;;http://x\x1b\\link", "seen link"),
        ("\x9b31mred \x1b(Bascii \x1bM end\x1b", "red ascii end"),
        ("a\x00b\x07c\x7fd\x85e", "abcd e"),
        ("\u202egnp.exe\u202c", "gnp.exe"),
        ("tabs\tand\r\nlines", "tabs and lines"),
        ("plain [1, 2, 3] of shape (3,)", "plain [1, 2, 3] of shape (3,)"),
        ("naïve Ünïcode 图", "naïve Ünïcode 图"),
    ],
)
def test_nothing_but_what_is_to_be_read(text: str, told: str) -> None:
    assert cleaned(text) == told


def test_tensors_and_arrays_are_their_shape_and_dtype() -> None:
    import numpy as np
    import tensorflow as tf

    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = tf.constant(values)
    assert cleaned(f"got {tensor}!") == "got [values of shape (2, 3)]!"
    assert cleaned(str(tensor)) == "tf.Tensor(shape=(2, 3), dtype=float32)"
    assert cleaned(f"got {tensor!r}!") == "got <tf.Tensor: shape=(2, 3), dtype=float32>!"
    assert cleaned(f"got {values!r}!") == "got array(shape=(2, 3), dtype=float32)!"
    assert cleaned(f"{values.astype(int)!r}") == "array(shape=(2, 3), dtype=int64)"
    assert cleaned(f"{values.astype(float)!r}") == "array(shape=(2, 3), dtype=float64)"
    assert cleaned(f"{values > 1!r}") == "array(shape=(2, 3), dtype=bool)"
    two = f"{tensor!s} and {tf.constant([1])!s}"
    assert cleaned(two) == (
        "tf.Tensor(shape=(2, 3), dtype=float32) and tf.Tensor(shape=(1,), dtype=int32)"
    )
    text = tf.constant(["a > b", "c"])
    assert cleaned(f"{text!r}") == "<tf.Tensor: shape=(2,), dtype=string>"
    random = np.random.default_rng(0).standard_normal((4, 5))
    assert cleaned(f"is {random}") == "is [values of shape (4, 5)]"
    large = cleaned(f"is {np.zeros((4000, 3))!r}")
    assert large.startswith("is array(shape=(?, 3), dtype=float64")
    variable = tf.Variable(values)
    assert "numpy" not in cleaned(f"{variable!r}") and "shape=(2, 3)" in cleaned(f"{variable!r}")


def test_what_has_a_shape_and_no_values_stays() -> None:
    for text in (
        "tf.Tensor(shape=(None, 3), dtype=float32)",
        "<KerasTensor shape=(None, 32), dtype=float32, sparse=False, name=x>",
        'Tensor("x:0", shape=(2,), dtype=float32)',
    ):
        assert cleaned(f"a {text} b") == f"a {text} b"


def test_an_exception_of_keras() -> None:
    import keras
    import numpy as np

    class Broken(keras.layers.Layer):
        def call(self, values: object) -> object:
            raise ValueError(f"no such thing: {values}")

    with pytest.raises(ValueError, match="no such thing") as raised:
        Broken()(np.ones((2, 3), np.float32))
    told = said(raised.value)
    assert told.startswith("ValueError: Exception encountered when calling")
    assert "no such thing: [values of shape (2, 3)] Arguments received" in told
    assert "\x1b" not in told


def test_type_message_and_length() -> None:
    assert said(KeyError("image")) == "KeyError: 'image'"
    assert said(ValueError()) == "ValueError: no message"
    long = cleaned("x" * 10_000)
    assert len(long) == LIMIT and long.endswith("…")
    assert len(cleaned("word " * 100, 20)) <= 20


@pytest.mark.parametrize("text", ["[" * 50_000, "tf.Tensor(" * 10_000, "array([" * 10_000, "\x1b]"])
def test_what_is_made_to_take_long_does_not(text: str) -> None:
    started = time.process_time()
    assert len(cleaned(text)) <= LIMIT
    assert time.process_time() - started < 10
