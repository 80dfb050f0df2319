"""Where an exception comes from: the user's line, not a package's."""

from __future__ import annotations

import json
import pathlib

import pytest
import tensorflow as tf

from stagecraft.common import errors

HERE = pathlib.Path(__file__)


def raised(function) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        function()
    return caught.value


def broken_line() -> int:
    lines = map(str.strip, HERE.read_text().splitlines())
    return 1 + [*lines].index('return examples["image"]')


def read_picture(examples: dict) -> object:
    return examples["image"]


def test_a_line_of_the_user() -> None:
    found = errors.of(raised(lambda: read_picture({})))
    assert found == (str(HERE), broken_line())


def test_the_innermost_line_that_no_package_has() -> None:
    found = errors.of(raised(lambda: json.loads("{") and None))
    assert found is not None and found.file == str(HERE)
    assert errors.of(ValueError("never raised")) is None


def from_another() -> None:
    try:
        read_picture({})
    except KeyError as error:
        raise RuntimeError("the training failed") from error


def test_what_an_exception_comes_from_counts() -> None:
    found = errors.of(raised(from_another))
    assert found is not None and found.line == broken_line()


def test_a_line_that_only_a_text_names() -> None:
    text = f'in user code:\n\n    File "{HERE}", line 7, in call  *\n        x\n\n    KeyError: 1'
    assert errors.of(ValueError(text)) == (str(HERE), 7)
    inside = f'  File "{tf.__file__}", line 9, in call\n'
    assert errors.of(ValueError(inside)) is None


def test_autograph_names_its_source() -> None:
    @tf.function
    def call(value: tf.Tensor) -> tf.Tensor:
        return read_picture({"value": value})

    found = errors.of(raised(lambda: call(tf.constant(1.0))))
    assert found is not None and found.file == str(HERE)
    assert found.line == broken_line()


def test_a_path_is_short_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE.parent)
    error = raised(lambda: read_picture({}))
    line = broken_line()
    assert errors.append("KeyError: 'image'", error, 600) == (
        f"KeyError: 'image' ({HERE.name}:{line})"
    )
    long = errors.append("x" * 1000, error, 600)
    assert len(long) == 600 and long.endswith(f"… ({HERE.name}:{line})")
