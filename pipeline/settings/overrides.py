"""Overrides of single settings: ``--set KEY=VALUE``, and options that stand for a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stagecraft.common import secrets
from stagecraft.pipeline.settings import strict_yaml
from stagecraft.pipeline.settings.strict_yaml import SettingsError

Tree = dict[str, Any]

_OTHER = {"steps": "epochs", "epochs": "steps"}


class Override(NamedTuple):
    """One setting, and the option that sets it."""

    text: str
    """The option, such as ``--set train.steps=5`` or ``--data FILE``; without secrets."""

    path: tuple[str, ...]
    value: Any

    @classmethod
    def option(cls, option: str, key: str, value: Any) -> Override:
        """An option such as ``--data`` that stands for a setting such as ``data.source``."""
        return cls(secrets.redact(f"{option} {value}"), tuple(key.split(".")), value)


def parse(text: str) -> Override:
    """Parses ``key.path=value``, with the value in YAML."""
    key, equals, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not path[-1]:
        shown = shortened(secrets.redact(text))
        raise SettingsError(
            f"--set {shown}: expected key=value, such as train.steps=500",
            setting="--set",
            value=shown,
            suggestion="train.steps=500",
        )
    shown = shortened(str(shown_value(path, value)))
    option = f"--set {shortened(secrets.redact(key.strip()))}={shown}"
    try:
        return Override(option, path, strict_yaml.parse(value))
    except strict_yaml.YamlError as error:
        if not error.reason.startswith("not YAML"):
            raise SettingsError(
                f"{option}: {error.reason}", setting=".".join(path), value=shown
            ) from None
        return Override(option, path, value)  # such as a pattern that begins with *


def applied(tree: Tree, overrides: Sequence[Override]) -> Tree:
    """A copy of a tree with the overrides; the last one of a setting counts."""
    tree = {name: dict(value) if isinstance(value, dict) else value for name, value in tree.items()}
    _make_room(tree, overrides)
    for override in overrides:
        *sections, name = override.path
        inner = tree
        for section in sections:
            below = inner.get(section)
            below = {} if below is None else below  # a section without settings
            if not isinstance(below, dict):
                raise SettingsError(
                    f"{override.text}: {section} is a value, not a section",
                    setting=".".join(override.path),
                )
            inner[section] = inner = dict(below)
        inner[name] = override.value
    return tree


def shown_value(path: Sequence[str], value: Any) -> Any:
    """A setting's value for a message, without secrets."""
    names = [str(name) for name in path]
    hides = "env" in names or names[:2] == ["beam", "args"]
    if hides or (names[:1] == ["kubeflow"] and "env" in str(value)):
        return secrets.LEFT_OUT
    return secrets.redact_tree(value, names[-1] if names else "")


def shortened(text: str) -> str:
    """A text, cut to 80 characters."""
    return text if len(text) <= 80 else text[:79] + "…"


def _make_room(tree: Tree, overrides: Sequence[Override]) -> None:
    """An override of steps removes the file's epochs, and the other way round."""
    section = tree.get("train")
    if not isinstance(section, dict):
        return
    for override in overrides:
        if override.path[:-1] == ("train",) and override.value is not None:
            section.pop(_OTHER.get(override.path[-1], ""), None)
