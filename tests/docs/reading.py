"""A reader of a page, who does what it says: writes its files, and gives its commands."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable

from snippets import ROOT, Snippet, needs, snippets, untested
from support import TINY

PAGES = [
    ROOT / "README.md",
    ROOT / "manifests" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

OPTIONAL = {"docs/how-to/keras-hub.md": "keras_hub"}
"""Pages that need a package which is not a dependency: read as a whole where it is installed."""

LONG = ("run", "parity", "emulate")
"""Commands of stagecraft that train."""

# With an id, each run trains: one of the same data and code that is done is not trained again.
FUNCTIONS = """
set -euo pipefail
stagecraft() {
    case "$1 $*" in
        *" --list"* | *" --help"*) command stagecraft "$@" ;;
        run\\ *) command stagecraft "$@" $(small "$@") --set "train.resume_id=$BASHPID-$RANDOM" ;;
        compile\\ *) command stagecraft "$@" $(small "$@") ;;
        parity\\ *) command stagecraft "$@" --set parity.steps=4 ;;
        doctor\\ *" --cluster"*) command stagecraft "$@" --set kubeflow.image=mine@sha256:0123 ;;
        *) command stagecraft "$@" ;;
    esac
}
small() {  # an example_gen has no settings of CIFAR's archives
    if grep -qs example_gen -- "$@"; then echo; else echo "$SMALL"; fi
}
make() {
    [ "$1" != run ] || [ -e runs/quickstart/serving ] || stagecraft run --config quickstart
}
"""


def name(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


def commands(page: pathlib.Path) -> list[str]:
    """All lines of a page's shell snippets."""
    return [
        line
        for found in snippets(page.read_text())
        if found.language == "sh"
        for line in found.commands
    ]


def script(snippet: Snippet) -> list[str]:
    """The commands of a snippet that its reader runs; ``test_install.py`` runs those of pip."""
    rows = untested()
    return [
        line for line in snippet.commands if not needs(line, rows) and not line.startswith("pip ")
    ]


def runs_something(page: pathlib.Path) -> bool:
    return any(
        script(found) if found.language == "sh" else found.language == "python" and not found.title
        for found in snippets(page.read_text())
    )


def is_long(page: pathlib.Path) -> bool:
    """Whether a page trains, or starts programs of the reader's."""
    words = [
        line.split()
        for found in snippets(page.read_text())
        if found.language == "sh"
        for line in script(found)
    ]
    return any(
        line[0] == "python"
        or line[:2] == ["make", "run"]
        or (line[0] == "stagecraft" and line[1] in LONG)
        for line in words
    )


@dataclasses.dataclass
class Reader:
    """Reads in a folder of his own, with programs that a fork server runs."""

    folder: pathlib.Path
    programs: pathlib.Path
    variables: dict[str, str]
    prepare: Callable[[str], str] = lambda text: text
    """Makes of a script what is given, such as another address."""

    def read(self, page: pathlib.Path) -> None:
        """From top to bottom.

        Raises:
            AssertionError: a command failed; with what it printed.
        """
        text = page.read_text()
        if "kubeflow_v2_runner.py" in text and "tfx template copy" not in text:
            for file in ("local_runner.py", "kubeflow_v2_runner.py"):
                shutil.copy(ROOT / file, self.folder)
        for snippet in snippets(text):
            if snippet.title:
                path = self.folder / snippet.title
                path.parent.mkdir(exist_ok=True)
                path.write_text(snippet.text)
            elif snippet.language == "python":
                self._give("python", "-c", snippet.text)
            elif snippet.language == "sh" and (lines := script(snippet)):
                self._give("bash", "-c", FUNCTIONS + self.prepare("\n".join(lines)))

    def _give(self, *command: str) -> None:
        small = " ".join(f"--set {setting}" for setting in TINY)
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={
                **self.variables,
                "PATH": os.pathsep.join([str(self.programs), self.variables["PATH"]]),
                "SMALL": small,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, f"{command[-1]}\n\n{done.stdout[-4000:]}"
