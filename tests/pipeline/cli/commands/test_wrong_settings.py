"""A wrong file of settings: one sentence and exit code 1, and one object with ``--json``."""

import pytest

WRONG = (b"", b"name: a\nname: b\n", b"\xff\xfen", b"[" * 50_000, b"train: {epochs: .inf}\n")


@pytest.mark.parametrize("command", ["run", "plan", "parity"])
def test_json_and_one_sentence(refused, tmp_path, command):
    for content in WRONG:
        (tmp_path / "mine.yaml").write_bytes(content)
        assert refused(command, "--config", "mine.yaml").startswith("mine.yaml")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.yaml"]


@pytest.mark.parametrize("command", ["config", "compile", "render"])
def test_commands_without_json(stagecraft, tmp_path, command):
    for content in WRONG:
        (tmp_path / "mine.yaml").write_bytes(content)
        ran = stagecraft(command, "--config", "mine.yaml")
        assert (ran.code, ran.stdout) == (1, "")
        assert ran.stderr.startswith("Error: mine.yaml")


def test_a_name_that_is_no_text(refused):
    error = refused("run", "--config", "no\x1b[31m\udcff.yaml")
    assert error.startswith(r"no\x1b[31m\udcff.yaml: No such file")
