"""What ``train.model`` may say; imports no Keras, so that a wrong name is refused at once."""

from __future__ import annotations

import difflib
import re

KNOWN = ("cnn", "resnet20", "resnet56", "wide_resnet_16_4", "wide_resnet_28_10")
"""Examples of each family; every depth of the papers, and every width, is there."""

FORM = "package.module:function"


def parse(name: str) -> tuple[str, dict[str, int]]:
    """A model's family and its sizes: ``("resnet", {"depth": 20})``, ``("user", {})``.

    Raises:
        ValueError: there is no such model; says which are near or known.
    """
    if ":" in name:
        if not re.fullmatch(r"\w+(\.\w+)*:\w+", name):
            raise ValueError(f"{name!r} is not of the form {FORM}")
        return "user", {}
    if name == "cnn":
        return "cnn", {}
    if match := re.fullmatch(r"resnet(\d+)", name):
        _check_depth(name, int(match[1]), beyond=2)
        return "resnet", {"depth": int(match[1])}
    if match := re.fullmatch(r"wide_resnet_(\d+)_(\d+)", name):
        _check_depth(name, int(match[1]), beyond=4)
        if int(match[2]) < 1:
            raise ValueError(f"{name}: width {match[2]} is less than 1; {_hint(name)}")
        return "wide_resnet", {"depth": int(match[1]), "width": int(match[2])}
    raise ValueError(f"unknown model {name!r}; {_hint(name)}")


def _check_depth(name: str, depth: int, *, beyond: int) -> None:
    blocks, rest = divmod(depth - beyond, 6)
    if rest or blocks < 1:
        raise ValueError(
            f"{name}: depth {depth} is not 6n + {beyond} with n of 1 or more; {_hint(name)}"
        )


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.5)
    known = f"known are {', '.join(KNOWN)}, or your own as {FORM}"
    return f"did you mean {near[0]!r}? ({known})" if near else known
