"""Files of settings: what is no YAML, or YAML that settings cannot be, is one sentence."""

from __future__ import annotations

import pathlib

import pytest

from stagecraft.pipeline.settings import strict_yaml
from stagecraft.pipeline.settings.strict_yaml import FileError, YamlError


def test_what_is_read() -> None:
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


def test_a_merged_key_may_be_given_again() -> None:
    text = "base: &b {k: 1}\na: {x: &x {<<: *b, k: 2}}\nc: {<<: *x, k: 3}\n"
    assert strict_yaml.parse(text)["c"] == {"k": 3}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, ("'a' is there twice", "line 1")),
        ("t:\n  x: 1\n  y: {z: 1,\n    z: 2}\n", 4, ("'z' is there twice", "line 3")),
        ("a: 1\n\tb: 2\n", 2, ("tab", "spaces")),
        ("a: [\n", 2, ("not YAML",)),
        ("a: 1\n---\nb: 2\n", 2, ("another document",)),
        ("a: *b\n", 1, ("undefined alias",)),
        ("? [1]\n: 2\n", 1, ("a key is a list",)),
        ("a: &a [*a]\n", 1, ("stands within what it repeats",)),
        (f"a: 1\nb: {'9' * 5000}\n", 2, ("5,000 digits", "2^63")),
        (f"a: 0x{'f' * 5000}\n", 1, ("5,002 digits",)),
        ("a: !!int x\n", 1, ("'x' is no int",)),
        ("a: !!timestamp x\n", 1, ("'x' is no timestamp",)),
        ("a: !!bool x\n", 1, ("'x' is no bool",)),
        ("a: !!python/object:os.system x\n", 1, ("tag",)),
        ("a: 1\nb: \x00\n", 2, (r"'\x00'",)),
        ("[" * 20_000, 1, ("nested in more than 50 levels",)),
        ("a:\n- {a: " + "{a: " * 20_000, 2, ("nested in more than 50 levels",)),
    ],
)
def test_what_is_refused(text: str, line: int | None, words: tuple[str, ...]) -> None:
    with pytest.raises(YamlError) as refused:
        strict_yaml.parse(text)
    assert refused.value.line == line
    for word in words:
        assert word in refused.value.reason
    assert "\n" not in str(refused.value)


def test_aliases_that_multiply() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(YamlError, match="aliases repeat more than"):
        strict_yaml.parse("\n".join(lines))


def test_aliases_that_nest() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000)]
    with pytest.raises(YamlError, match="nested in more than 50 levels") as refused:
        strict_yaml.parse("\n".join(lines))
    assert refused.value.line is not None


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("# ok\nname: Größe\n".encode("latin-1"), 2, "0xf6 is not UTF-8"),
        ("name: x\n".encode("utf-16"), None, "UTF-16"),
        (b"x" * (strict_yaml.MAX_BYTES + 1), None, "longer than"),
    ],
)
def test_what_is_no_utf_8(
    tmp_path: pathlib.Path, content: bytes, line: int | None, words: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(FileError) as refused:
        strict_yaml.read(file)
    assert (refused.value.file, refused.value.line) == (str(file), line)
    assert words in refused.value.reason


def test_a_byte_order_mark_is_none_of_the_first_key(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert strict_yaml.read(file) == {"name": "x"}


@pytest.mark.timeout(20)
def test_a_device_that_never_ends() -> None:
    with pytest.raises(FileError, match="longer than"):
        strict_yaml.read(pathlib.Path("/dev/zero"))
