import dataclasses
import json
import pathlib

import click.testing
import pytest

from stagecraft.pipeline.local import supervisor

FAKE_WORKER = pathlib.Path(__file__).parent.parent / "local" / "fake_worker.py"


@dataclasses.dataclass
class Ran:
    """The result of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def last_line(self):
        return json.loads(self.stdout.splitlines()[-1])


@pytest.fixture
def stagecraft(monkeypatch, tmp_path):
    """``stagecraft("run", "--json", fake=[…])`` -> Ran, in ``tmp_path``, with a fake worker."""
    from stagecraft.pipeline.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "_WORKER", (str(FAKE_WORKER),))
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.5)

    def stagecraft(*arguments, fake=None):
        monkeypatch.setenv("FAKE", json.dumps(fake or []))
        ran = click.testing.CliRunner().invoke(main, list(arguments))
        if ran.exception and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return Ran(ran.exit_code, ran.stdout, ran.stderr)

    return stagecraft


@pytest.fixture
def refused(stagecraft):
    """``refused("run", "--set", …)``: the message of the command's one error."""

    def refused(*arguments):
        ran = stagecraft(*arguments, "--json", fake=["kill"])
        assert ran.code == 1
        (line,) = ran.stdout.splitlines()
        error = json.loads(line)["error"]
        assert ran.stderr == f"Error: {error}\n"
        return error

    return refused
