"""Which Python is chosen (tools/choose-python) and how the environment is made (tools/setup)."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest
from messages import Messages
from processes import ran

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHOOSE = ROOT / "tools" / "choose-python"


class Machine:
    """A machine of our making: its glibc and its Pythons are scripts on a PATH of their own."""

    def __init__(self, folder: pathlib.Path, glibc: str | None) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("bash", "cut", "env", "grep", "head", "ls", "sort"):
            (self.bin / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool} here"))
        self.script("bin/getconf", f"echo glibc {glibc}" if glibc else "exit 1")

    def script(self, path: str, body: str) -> str:
        """Write a script and return its path."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)
        return str(file)

    def python(self, version: str, path: str | None = None) -> str:
        """A Python that answers as one of this version does, asked for it or for any."""
        path = path or f"bin/python{version}"
        return self.script(
            path, f'case "$4" in ""|{version}) echo {version} {self.folder}/{path} ;; esac'
        )

    def choose(self, asked: str = "") -> tuple[int, str, str]:
        """Exit code, the chosen path, and what people read."""
        environment = {"PATH": str(self.bin), "HOME": str(self.folder)}
        done = ran(CHOOSE, asked, code=None, env=environment)
        return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.fixture
def old(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path, "2.36")


@pytest.fixture
def new(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path, "2.39")


UV = ".local/share/uv/python/cpython-3.12.9-linux/bin/python"


@pytest.mark.parametrize(
    ("glibc", "others", "version", "path"),
    [
        pytest.param("2.39", ["3.10"], "3.12", None, id="new glibc, the next stack"),
        pytest.param("2.39", ["3.11"], "3.10", None, id="new glibc without 3.12"),
        pytest.param("2.36", ["3.12"], "3.10", None, id="old glibc, the classic stack"),
        pytest.param("2.4", ["3.12"], "3.10", None, id="glibc by number, not by letter"),
        pytest.param(None, ["3.12"], "3.10", None, id="another libc"),
        pytest.param("2.36", [], "3.10", "bin/python3", id="plain python3 of that version"),
        pytest.param("2.39", [], "3.12", UV, id="uv keeps Pythons, too"),
    ],
)
def test_choice(
    tmp_path: pathlib.Path, glibc: str | None, others: list[str], version: str, path: str | None
) -> None:
    machine = Machine(tmp_path, glibc)
    for other in others:
        machine.python(other)
    python = machine.python(version, path)
    assert machine.choose() == (0, python, "")


def test_a_shim_that_does_not_answer_is_passed_over(old: Machine) -> None:
    old.script("bin/python3.10", "echo 'pyenv: python3.10: command not found' >&2; exit 127")
    python = old.python("3.10", ".pyenv/versions/3.10.13/bin/python")
    assert old.choose() == (0, python, "")


@pytest.mark.parametrize("machine", ["old", "new"])
def test_no_python_ends_in_one_sentence(
    machine: str, request: pytest.FixtureRequest, messages: Messages
) -> None:
    code, chosen, said = request.getfixturevalue(machine).choose()
    assert (code, chosen) == (1, "")
    assert said.count("\n") == 0
    wanted = "3.12 or 3.10" if machine == "new" else "3.10"
    assert f"No Python {wanted} found" in said
    messages.check(said)


@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_untested_versions_are_taken_and_called_so(new: Machine, version: str) -> None:
    new.python("3.12")
    python = new.python(version)
    code, chosen, said = new.choose(version)
    assert (code, chosen) == (0, python)
    assert f"Python {version} is untested" in said


def test_a_path_can_be_named(new: Machine) -> None:
    new.python("3.12")
    python = new.python("3.10", "elsewhere/python3")
    assert new.choose(python) == (0, python, "")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("3.9", "PYTHON=3.9 is Python 3.9: 3.10 or 3.12 is needed"),
        ("3.12", "Python 3.12 means the next stack, whose wheels need glibc 2.39 or newer; here"),
        ("3.13", "PYTHON=3.13: found no Python 3.13 with venv, pip and headers"),
        ("python4", "PYTHON=python4 is no Python with venv, pip and headers"),
    ],
)
def test_what_cannot_be_is_refused(old: Machine, asked: str, said: str) -> None:
    for version in ("3.9", "3.10", "3.12"):
        old.python(version)
    code, chosen, message = old.choose(asked)
    assert (code, chosen) == (1, "")
    assert said in message
    assert message.count("\n") == 0


def test_probe_answers_for_the_python_that_runs_this() -> None:
    """The real probe, on a real Python; inside an environment it names the one beneath."""
    done = ran(CHOOSE, sys.executable)
    base = getattr(sys, "_base_executable", sys.executable)
    assert done.stdout.strip() == os.path.realpath(base)


def locked(*names: str) -> str:
    """What requirements.lock says of some packages."""
    lock = (ROOT / "requirements.lock").read_text()
    found = re.findall(rf"^(?:{'|'.join(names)})==.*\n(?: .*\n)+", lock, re.MULTILINE)
    assert len(found) == len(names)
    return "".join(found)


BASICS = ("packaging", "pip", "setuptools", "uv", "wheel")


class Checkout:
    """A checkout like this one, but with next to nothing to install."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.stamp = folder / ".venv" / "stagecraft.stamp"
        self.environment = {k: v for k, v in os.environ.items() if k not in ("VENV", "PYTHON")}
        self.environment["PYTHONDONTWRITEBYTECODE"] = "1"
        shutil.copytree(ROOT / "tools", folder / "tools")
        self.lock("pluggy", *BASICS)
        (folder / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
            '[project]\nname = "small"\nversion = "1"\n[tool.setuptools]\npackages = []\n'
        )

    def lock(self, *names: str) -> None:
        (self.folder / "requirements.lock").write_text(locked(*names))

    def setup(self, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **variables}
        return ran(self.folder / "tools" / "setup", code=None, env=environment)

    def installed(self) -> set[str]:
        python = self.folder / ".venv/bin/python"
        listed = ran(python, "-m", "pip", "list", "--format=freeze")
        return {line.split("==")[0] for line in listed.stdout.splitlines()}


@pytest.mark.slow
def test_environment_is_made_kept_renewed_and_never_half_done(tmp_path: pathlib.Path) -> None:
    checkout = Checkout(tmp_path / "checkout")

    first = checkout.setup(PYTHON=sys.executable)
    assert first.returncode == 0, first.stderr
    assert "making .venv with" in first.stderr
    assert checkout.installed() == {"small", "pluggy", *BASICS}
    # Nothing else would ever compile it in this environment.
    assert [*checkout.folder.glob(".venv/lib/*/site-packages/pluggy/__pycache__/_manager.*.pyc")]

    began = time.monotonic()
    again = checkout.setup()
    assert time.monotonic() - began < 1
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    checkout.lock("iniconfig", *BASICS)
    renewed = checkout.setup()
    assert renewed.returncode == 0, renewed.stderr
    assert "bringing .venv up" in renewed.stderr and "requirements.lock" in renewed.stderr
    assert checkout.installed() == {"small", "iniconfig", *BASICS}

    with (checkout.folder / "requirements.lock").open("a") as lock:
        lock.write(re.sub("sha256:.{8}", "sha256:00000000", locked("pluggy")))
    forged = checkout.setup()
    assert forged.returncode != 0
    assert "pluggy" in forged.stderr
    assert not checkout.stamp.exists()

    checkout.lock(*BASICS)
    mended = checkout.setup(PYTHON=sys.executable)
    assert mended.returncode == 0, mended.stderr
    assert "making .venv with" in mended.stderr
    assert checkout.stamp.exists()


def test_a_folder_of_something_else_is_not_taken_for_an_environment(
    tmp_path: pathlib.Path, messages: Messages
) -> None:
    checkout = Checkout(tmp_path / "checkout")
    (tmp_path / "photos").mkdir()
    precious = tmp_path / "photos" / "cat.jpg"
    precious.touch()
    done = checkout.setup(VENV=str(precious.parent), PYTHON=sys.executable)
    assert done.returncode == 1
    assert f"VENV={precious.parent} " in done.stderr
    messages.check(done.stderr)
    assert precious.exists()


def test_uv_is_locked_for_its_own_installation() -> None:
    """The piece of the lock that pip gets, cut out as tools/setup and the Dockerfile do it."""
    found = ran("sed", "-n", r"/^uv==/,/[^\\]$/p", "requirements.lock", cwd=ROOT)
    cut = found.stdout.splitlines()
    assert cut[0].startswith("uv==")
    assert len(cut) > 1
    assert all(line.strip().startswith("--hash=sha256:") for line in cut[1:])


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-gpu.lock"])
def test_locks_hold_hashes_and_no_addresses(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    packages = re.findall(r"^[a-z0-9].*", text, re.MULTILINE)
    assert packages
    assert all("==" in line and line.endswith("\\") for line in packages)


def test_the_quickstart_on_flink(tmp_path: pathlib.Path) -> None:
    """The job server's jar goes to Beam if it fits; otherwise Beam gets its own."""
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "flink-job-server.jar").touch()
    machine = Machine(tmp_path, None)
    for tool in ("dirname", "realpath"):
        (machine.bin / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool} here"))
    machine.script("bin/java", "exit 1")
    machine.script("venv/bin/stagecraft", 'echo "$@"')
    environment = {"PATH": str(machine.bin), "VENV": str(tmp_path / "venv")}

    def ran_on(code: int, place: pathlib.Path | str) -> subprocess.CompletedProcess[str]:
        machine.script("venv/bin/python", f"exit {code}")  # whether it is the classic stack's
        variables = {**environment, "STAGECRAFT_FLINK": str(place)}
        return ran(ROOT / "tools" / "flink", "--to", "Transform", code=None, env=variables)

    words = ran_on(0, jars).stdout
    assert f'"--flink_job_server_jar={jars}/flink-job-server.jar"]' in words
    assert words.startswith("run --config quickstart") and words.endswith(" --to Transform\n")
    for refused in (ran_on(1, jars), ran_on(0, tmp_path)):
        assert refused.returncode == 1 and "unset STAGECRAFT_FLINK" in refused.stderr
    assert "flink_job_server_jar" not in ran_on(1, "").stdout
