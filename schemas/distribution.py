"""The distribution that this package came in, and the one that it cannot share a folder with.

The import name is ``stagecraft``, the distribution is ``tfx-stagecraft``. The Python Package Index
has another project as ``stagecraft``, which installs the same folder ``stagecraft``.
"""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import shlex
import urllib.parse

from stagecraft.schemas.errors import UserError

NAME = "tfx-stagecraft"
FOREIGN = "stagecraft"


class ForeignDistributionError(UserError):
    """The distribution ``stagecraft`` is installed in the folder of this package.

    ``value`` is its name and version, ``file`` the folder, ``suggestion`` the command.
    """


def check() -> None:
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
