"""``stagecraft lint``: what is shown, as text and as JSON, and what cannot be read."""

import json
import pathlib

import click.testing
import pytest

from stagecraft.pipeline.cli.commands.lint import lint

ACCEPTED = pathlib.Path(__file__).parents[2] / "kubeflow" / "linter" / "accepted.yaml"


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    text = ACCEPTED.read_text()
    (tmp_path / "good.yaml").write_text(text)
    (tmp_path / "bad.yaml").write_text(text.replace("2.1.0", "2.0.0", 1))

    def run(*arguments):
        ran = click.testing.CliRunner().invoke(lint, list(arguments))
        if ran.exception and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return ran

    return run


def test_accepted(run):
    ran = run("good.yaml")
    assert ran.exit_code == 0
    assert ran.stdout == "accepted: good.yaml\n"


def test_findings(run):
    ran = run("good.yaml", "bad.yaml")
    assert ran.exit_code == 1
    assert "bad.yaml: schemaVersion (schema-version)" in ran.output and "1 finding" in ran.output


def test_json_says_the_same(run):
    ran = run("good.yaml", "bad.yaml", "--json")
    assert ran.exit_code == 1
    [line] = ran.stdout.splitlines()
    said = json.loads(line)
    assert said["accepted"] is False
    assert said["files"]["good.yaml"] == []
    [finding] = said["files"]["bad.yaml"]
    assert finding["rule"] == "schema-version" and finding["where"] == "schemaVersion"
    assert finding.keys() == {"rule", "where", "problem", "remedy", "source"}
    assert json.loads(run("good.yaml", "--json").stdout) == {
        "accepted": True,
        "files": {"good.yaml": []},
    }


@pytest.mark.parametrize("name", ["gone.yaml", ".", "archive.zip"])
def test_unreadable(run, tmp_path, name):
    (tmp_path / "archive.zip").write_bytes(b"PK\x03\x04\xff\xfe")
    ran = run("good.yaml", name, "--json")
    assert ran.exit_code == 1
    error = json.loads(ran.stdout)["error"]
    assert ran.stderr == f"Error: {error}\n"
