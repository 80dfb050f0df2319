"""A wrong file of settings: one sentence and exit code 1, and one object with ``--json``."""

from __future__ import annotations

import pathlib

import pytest

WRONG = {
    "empty": (b"", "is empty"),
    "twice": (b"name: a\nname: b\n", "line 2: 'name' is there twice, also in line 1"),
    "latin-1": ("name: Größe\n".encode("latin-1"), "line 1: the byte 0xf6 is not UTF-8"),
    "utf-16": ("name: x\n".encode("utf-16"), "is in UTF-16"),
    "tab": (b"train:\n\tsteps: 3\n", "line 2: not YAML: a tab"),
    "null": (b"name: \0\n", "line 1: the character"),
    "digits": (b"train: {steps: " + b"9" * 5000 + b"}\n", "line 1: a number of 5,000 digits"),
    "date": (b"train: {steps: 2024-13-45}\n", "train.steps: expected a whole number"),
    "brackets": (b"[" * 50_000, "line 1: brackets or sections are nested"),
    "infinite": (b"train: {learning_rate: .inf}\n", "train.learning_rate: expected a finite"),
    "huge": (b"train: {steps: 9223372036854775808}\n", "train.steps: expected less than 2^63"),
}


@pytest.mark.parametrize("command", ["run", "plan", "parity"])
@pytest.mark.parametrize("kind", WRONG)
def test_json_and_one_sentence(stagecraft, tmp_path: pathlib.Path, command: str, kind: str) -> None:
    content, said = WRONG[kind]
    (tmp_path / "mine.yaml").write_bytes(content)
    ran = stagecraft(command, "--json", "--config", "mine.yaml")
    assert ran.code == 1
    assert len(ran.stdout.splitlines()) == 1
    assert ran.last_line["error"].startswith("mine.yaml") and said in ran.last_line["error"]
    assert ran.stderr == f"Error: {ran.last_line['error']}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml"]


@pytest.mark.parametrize("command", ["config", "compile", "render"])
def test_commands_without_json(stagecraft, tmp_path: pathlib.Path, command: str) -> None:
    for content, said in WRONG.values():
        (tmp_path / "mine.yaml").write_bytes(content)
        ran = stagecraft(command, "--config", "mine.yaml")
        assert (ran.code, ran.stdout) == (1, "")
        assert ran.stderr.startswith("Error: mine.yaml") and said in ran.stderr


def test_a_name_that_is_no_text(stagecraft) -> None:
    ran = stagecraft("run", "--json", "--config", "no\x1b[31m\udcff.yaml")
    assert ran.code == 1
    assert ran.stderr.startswith("Error: no\ufffd.yaml: No such file")
    assert ran.last_line["error"].startswith("no\ufffd.yaml: No such file")
