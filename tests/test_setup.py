"""Which Python is chosen (tools/choose-python) and how the environment is made (tools/setup)."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest
from processes import ran

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHOOSE = ROOT / "tools" / "choose-python"


class Machine:
    """A machine of our making: its glibc and its Pythons are scripts on a PATH of their own."""

    def __init__(self, folder: pathlib.Path, glibc: str | None) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.has("bash", "cut", "env", "grep", "head", "ls", "sort")
        self.script("bin/getconf", f"echo glibc {glibc}" if glibc else "exit 1")

    def has(self, *tools: str) -> None:
        """Gives it programs of this machine."""
        for tool in tools:
            (self.bin / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool} here"))

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

    def choose(self, asked: str = "", **variables: str) -> tuple[int, str, str]:
        """Exit code, the chosen path, and what people read."""
        environment = {"PATH": str(self.bin), "HOME": str(self.folder), **variables}
        done = ran(CHOOSE, asked, code=None, env=environment, stdin=subprocess.DEVNULL)
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
def test_no_python_ends_in_one_sentence(machine: str, request: pytest.FixtureRequest) -> None:
    code, chosen, said = request.getfixturevalue(machine).choose()
    assert (code, chosen) == (1, "")
    assert said.count("\n") == 0
    wanted = "3.12 or 3.10" if machine == "new" else "3.10"
    assert f"No Python {wanted} found" in said


UV_FAKE = """
[ "$1 $2" = "python install" ] && [ "$UV_PYTHON_INSTALL_BIN" = 0 ] || exit 2
python="$UV_PYTHON_INSTALL_DIR/cpython-$3.9-linux/bin/python"
/bin/mkdir -p "${python%/*}"
printf '#!/bin/sh\necho %s %s\n' "$3" "$python" >"$python"
/bin/chmod +x "$python"
"""
"""uv that downloads a Python."""


@pytest.mark.parametrize(
    ("machine", "asked", "version"),
    [("old", "", "3.10"), ("new", "", "3.12"), ("new", "3.11", "3.11"), ("old", "3.10", "3.10")],
)
def test_uv_downloads_a_python_if_the_variable_says_so(
    machine: str, asked: str, version: str, request: pytest.FixtureRequest
) -> None:
    here = request.getfixturevalue(machine)
    here.script("bin/uv", UV_FAKE)
    assert here.choose(asked)[:2] == (1, "")
    assert here.choose(asked, PYTHON_INSTALL="0")[:2] == (1, "")
    code, chosen, _ = here.choose(asked, PYTHON_INSTALL="1")
    assert (code, chosen) == (0, f"{here.folder}/{UV.replace('3.12', version)}")


@pytest.mark.parametrize(
    ("uv", "machine", "asked"),
    [(None, "old", ""), ("exit 1", "new", ""), (UV_FAKE, "old", "3.12")],
    ids=["no uv", "no network", "a Python that this machine cannot use"],
)
def test_nothing_is_chosen_where_uv_cannot_help(
    uv: str | None, machine: str, asked: str, request: pytest.FixtureRequest
) -> None:
    here = request.getfixturevalue(machine)
    here.has("mktemp", "dirname", "rm")
    if uv:
        here.script("bin/uv", uv)
    code, chosen, _ = here.choose(asked, PYTHON_INSTALL="1")
    assert (code, chosen) == (1, "")
    assert not (here.folder / ".local").exists()


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
def test_a_question_at_a_terminal(old: Machine, answer: str, code: int) -> None:
    old.script("bin/uv", UV_FAKE)
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        terminal.write(f"{answer}\n".encode())
        done = subprocess.run(
            [CHOOSE],
            env={"PATH": str(old.bin), "HOME": str(old.folder)},
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.PIPE,
        )
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # how Linux tells the end of a terminal
            while some := terminal.read(4096):
                said += some
    assert b"Download it with uv" in said
    assert done.returncode == code
    assert bool(done.stdout) == (old.folder / ".local").exists() == (code == 0)


def test_without_a_home_a_python_is_found(old: Machine) -> None:
    python = old.python("3.10")
    environment = {"PATH": str(old.bin)}
    assert ran(CHOOSE, env=environment).stdout.strip() == python


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


@contextlib.contextmanager
def anybody() -> Iterator[tuple[pathlib.Path, dict[str, int]]]:
    """A folder that everybody reads, and options of a process that may not write everywhere."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o755)
        yield pathlib.Path(folder), {"user": 65534, "group": 65534} if os.getuid() == 0 else {}


LITTLE = "echo Filesystem; echo x 9 9 3100000 9 /"
"""df of a file system with 3 GB."""


@pytest.mark.parametrize(
    ("variables", "programs", "variable"),
    [
        pytest.param({}, {}, "g++", id="no compiler"),
        pytest.param({}, {"c++": "exit 1"}, "g++", id="a compiler without its library"),
        pytest.param({"CXX": "c++ -nothing"}, {"c++": "exit 1"}, "CXX=", id="CXX"),
        pytest.param({"HOME": "/dev/null"}, {"c++": ""}, "UV_CACHE_DIR", id="HOME is no folder"),
        pytest.param({"UV_CACHE_DIR": "/dev/null/x"}, {"c++": ""}, "UV_CACHE_DIR", id="cache"),
        pytest.param({"VENV": "/dev/null/x"}, {"c++": ""}, "VENV=", id="VENV"),
        pytest.param({}, {"c++": "", "df": LITTLE}, "UV_CACHE_DIR", id="little space"),
    ],
)
def test_a_machine_that_lacks_something_is_told_first(
    tmp_path: pathlib.Path,
    variables: dict[str, str],
    programs: dict[str, str],
    variable: str,
) -> None:
    """One sentence, before a Python is chosen or anything is written."""
    machine = Machine(tmp_path, "2.39")
    machine.has("awk", "cat", "dirname", "sha256sum")
    for name, body in programs.items():
        machine.script(f"bin/{name}", body)
    if "df" not in programs:
        machine.has("df")
    checkout = Checkout(tmp_path / "checkout")
    checkout.environment = {"PATH": str(machine.bin), "HOME": str(tmp_path)}
    done = checkout.setup(**variables)
    assert done.returncode == 1
    assert variable in done.stderr and done.stderr.count("\n") == 1
    assert "No Python" not in done.stderr
    assert not (checkout.folder / ".venv").exists()


def test_a_clone_that_cannot_be_written() -> None:
    with anybody() as (folder, whom):
        checkout = Checkout(folder / "checkout")
        (folder / "checkout").chmod(0o555)
        done = ran(checkout.folder / "tools" / "setup", code=1, env=checkout.environment, **whom)
        (folder / "checkout").chmod(0o755)
    assert done.stderr.count("\n") == 1


def test_the_readme_has_the_space_that_is_checked() -> None:
    script = (ROOT / "tools" / "setup").read_text()
    (gigabytes,) = re.findall(r"^gigabytes=(\d+)", script, re.MULTILINE)
    assert re.findall(r"(\d+) GB of free disk", (ROOT / "README.md").read_text()) == [gigabytes]


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


def test_a_folder_of_something_else_is_not_taken_for_an_environment(tmp_path: pathlib.Path) -> None:
    checkout = Checkout(tmp_path / "checkout")
    (tmp_path / "photos").mkdir()
    precious = tmp_path / "photos" / "cat.jpg"
    precious.touch()
    done = checkout.setup(VENV=str(precious.parent), PYTHON=sys.executable)
    assert done.returncode == 1
    assert f"VENV={precious.parent} " in done.stderr
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
    machine.has("dirname", "realpath")
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
