"""Public names of a package that are imported when they are used for the first time (PEP 562).

The distribution that this package came in, and the one that it cannot share a folder with.

The import name is ``stagecraft``, the distribution is ``tfx-stagecraft``. The Python Package Index
has another project as ``stagecraft``, which installs the same folder ``stagecraft``.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import pathlib
import shlex
import sys
import urllib.parse
from collections.abc import Callable
from typing import Any

from stagecraft.common.errors import UserError


def exported(source: ast.Module) -> dict[str, tuple[str, str]]:
    """Module and attribute of each name that a source exports by :func:`exports`."""
    places = dict[str, tuple[str, str]]()
    for node in source.body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                places |= {x.asname or x.name: (line.module or "", x.name) for x in line.names}
    return places


def exports(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    The names are those that its ``__init__.py`` imports under ``if TYPE_CHECKING``.
    """
    own = vars(sys.modules[package])
    places = exported(ast.parse(pathlib.Path(own["__file__"]).read_text("utf-8")))

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        check_distribution()
        module, attribute = places[name]
        # In the package itself, hasattr would call this function again.
        found = None if module == package else importlib.import_module(module)
        if hasattr(found, attribute):
            own[name] = getattr(found, attribute)
        else:
            own[name] = importlib.import_module(f"{module}.{attribute}")
        return own[name]

    return sorted(places), get, lambda: sorted({*own, *places})


NAME = "tfx-stagecraft"
FOREIGN = "stagecraft"


class ForeignDistributionError(UserError):
    """The distribution ``stagecraft`` is installed in the folder of this package.

    ``value`` is its name and version, ``file`` the folder, ``suggestion`` the command.
    """


def check_distribution() -> None:
    """Refuses an environment in which the other project is installed beside this package.

    The files of whichever came last are in place, so neither is whole. An editable installation
    has no files there, and is not refused.

    Raises:
        ForeignDistributionError: it is installed.
    """
    for found in importlib.metadata.distributions(name=FOREIGN):
        folder = pathlib.Path(str(found.locate_file("stagecraft")))
        if (folder / "__init__.py").exists():
            command = f"pip uninstall --yes {FOREIGN} {NAME}"
            raise ForeignDistributionError(
                f"The distribution {FOREIGN} {found.version} is not Stagecraft ({NAME}) and has "
                f"overwritten files in {folder}, or lost its own: run `{command}`, then install "
                "Stagecraft again from its wheel or clone.",
                value=f"{FOREIGN} {found.version}",
                suggestion=command,
                file=str(folder),
            )


def requirement(extra: str) -> str:
    """This installation with an extra, as a line of requirements.txt.

    The line names the wheel, folder or repository that pip installed (PEP 610), because no index
    may have this distribution. If pip did not install it, or the wheel is gone, the line is a
    comment.
    """
    wanted = f"{NAME}[{extra}]"
    try:
        found = importlib.metadata.distribution(NAME)
    except importlib.metadata.PackageNotFoundError:
        return f"# {wanted} @ file:///PATH/TO/WHEEL"
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if not origin:
        return f"{wanted}=={found.version}"  # it came from an index
    url = origin["url"]
    if url.startswith("file:"):
        path = pathlib.Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
        if not path.exists():
            return f"# {wanted} @ {url}"
        if origin.get("dir_info", {}).get("editable"):
            return f"-e {shlex.quote(f'{path}[{extra}]')}"
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"{wanted} @ {url}"


def install(extra: str) -> str:
    """The command that adds an extra to this installation."""
    line = requirement(extra).removeprefix("# ")
    return f"pip install {line if line.startswith('-e ') else shlex.quote(line)}"
