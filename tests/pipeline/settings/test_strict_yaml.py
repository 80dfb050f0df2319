"""Strict YAML: an error is one sentence."""

import pathlib

import pytest

from stagecraft.pipeline.settings import strict_yaml
from stagecraft.pipeline.settings.strict_yaml import FileError, YamlError


def test_what_is_read():
    text = "a: &a {x: 1}\nb: {<<: *a, y: .5}\nc: 2024-01-01\nd: 0x10\ne: no\nf: 2024-13-45\n"
    assert strict_yaml.parse(text) == {
        "a": {"x": 1},
        "b": {"x": 1, "y": 0.5},
        "c": "2024-01-01",  # no date
        "d": 16,
        "e": False,
        "f": "2024-13-45",
    }
    assert strict_yaml.parse("") is None


def test_a_merged_key_may_be_given_again():
    text = "base: &b {k: 1}\na: {x: &x {<<: *b, k: 2}}\nc: {<<: *x, k: 3}\n"
    assert strict_yaml.parse(text)["c"] == {"k": 3}


LINES = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
LINES += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
MULTIPLYING = "\n".join(LINES)
NESTED = "\n".join(["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000)])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", 3),
        ("t:\n  x: 1\n  y: {z: 1,\n    z: 2}\n", 4),
        ("a: 1\n\tb: 2\n", 2),
        ("a: [\n", 2),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: *b\n", 1),
        ("? [1]\n: 2\n", 1),
        ("a: &a [*a]\n", 1),
        (f"a: 1\nb: {'9' * 5000}\n", 2),
        (f"a: 0x{'f' * 5000}\n", 1),
        ("a: !!int x\n", 1),
        ("a: !!timestamp x\n", 1),
        ("a: !!bool x\n", 1),
        ("a: !!python/object:os.system x\n", 1),
        ("a: 1\nb: \x00\n", 2),
        ("[" * 20_000, 1),
        ("a:\n- {a: " + "{a: " * 20_000, 2),
        (MULTIPLYING, 5),
        (NESTED, 50),
    ],
    ids=range(19),
)
def test_errors(text, line):
    with pytest.raises(YamlError) as caught:
        strict_yaml.parse(text)
    assert caught.value.line == line and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("# ok\nname: Größe\n".encode("latin-1"), 2),
        ("name: x\n".encode("utf-16"), None),
        (b"x" * (strict_yaml.MAX_BYTES + 1), None),
    ],
    ids=["latin-1", "utf-16", "large"],
)
def test_files_that_are_no_utf_8(tmp_path, content, line):
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(FileError) as caught:
        strict_yaml.read(file)
    assert (caught.value.file, caught.value.line) == (str(file), line)
    assert caught.value.record == (f"line {line}" if line else "")


def test_a_byte_order_mark_is_none_of_the_first_key(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert strict_yaml.read(file) == {"name": "x"}


@pytest.mark.timeout(20)
def test_a_device_that_never_ends():
    with pytest.raises(FileError):
        strict_yaml.read(pathlib.Path("/dev/zero"))
