"""Writes a project from a template. Imports nothing heavy.

A template is a folder of ``templates/``. Its files lie over those of ``templates/common/``.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator

from stagecraft.common import lazy
from stagecraft.common.errors import SettingError, UserError
from stagecraft.pipeline.settings.kubeflow import DEFAULT_IMAGE

_TEMPLATES = pathlib.Path(__file__).resolve().parent / "templates"
_COMMON, _ABOUT = "common", "about.md"

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
"""Names of a project: those that the setting ``name`` accepts."""

_KEPT = {".git", ".github", ".gitattributes", ".idea", ".venv", ".vscode"}
"""A folder with only these is as good as empty: no template has files of these names."""


def templates() -> dict[str, str]:
    """Descriptions of the templates by name, in order."""
    found = {
        path.parent.name: path.read_text(encoding="utf-8")
        for path in _TEMPLATES.glob(f"*/{_ABOUT}")
    }
    return {name: found[name].splitlines()[0] for name in sorted(found)}


def write(folder: pathlib.Path, template: str, name: str | None = None) -> str:
    """Writes a project, completely or not at all; returns the name of its pipeline.

    Args:
        folder: a new or an empty folder; it may hold ``.git`` and settings of editors.
        template: a key of :func:`templates`.
        name: of the pipeline. None: the folder's name, in lower case and with ``-`` for ``_``.

    Raises:
        SettingError: no such template; not a name; the folder is not empty, or is a file.
        UserError: the folder cannot be written.
    """
    _check_template(template)
    target = pathlib.Path(os.path.abspath(folder.expanduser()))
    name = _checked_name(name, target)
    try:
        _check_empty(target, folder)
        with _unfinished(target) as made:
            about = (_TEMPLATES / template / _ABOUT).read_text(encoding="utf-8").strip()
            values = {
                "ABOUT": about,
                "IMAGE": DEFAULT_IMAGE,
                "PIPELINE_NAME": name,
                "STAGECRAFT": lazy.requirement("kubeflow"),
            }
            for layer in (_COMMON, template):
                _render(_TEMPLATES / layer, made, values)
            _move(made, target)
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be written ({error.strerror or error}); use another folder",
            setting="DIR",
            value=str(folder),
            file=str(error.filename or folder),
        ) from error
    return name


def _check_template(template: str) -> None:
    known = templates()
    if template not in known:
        raise SettingError(
            "--template", template, "does not exist", f"one of {', '.join(known)}", shown=template
        )


def _checked_name(name: str | None, target: pathlib.Path) -> str:
    chosen = target.name.lower().replace("_", "-") if name is None else name
    if not _NAME.fullmatch(chosen):
        origin = "" if name is not None else f" (from the folder {target.name!r})"
        raise SettingError(
            "--name",
            chosen,
            f"is not a name of a pipeline{origin}, which has at most 63 lower-case letters, digits "
            "and '-', and begins with a letter",
            "a name such as my-pipeline",
            shown=repr(chosen),
        )
    return chosen


def _check_empty(target: pathlib.Path, given: pathlib.Path) -> None:
    if target.is_dir():
        others = sorted({path.name for path in target.iterdir()} - _KEPT)
        problem = f"is not empty: it has {', '.join(others[:3])}{', …'[: 3 * (len(others) > 3)]}"
    else:
        others, problem = [target.name] * os.path.lexists(target), "is a file"
    if others:
        raise SettingError("DIR", str(given), problem, "a new or empty folder")


@contextlib.contextmanager
def _unfinished(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder on the file system of the target, removed at the end.

    Folders that were made on the way to the target are removed, too, if the target is missing.
    """
    parents = [each for each in (target, *target.parents) if not each.exists()][1:]
    beside = target if target.is_dir() else target.parent
    try:
        beside.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=beside) as folder:
            yield pathlib.Path(folder)
    finally:
        if not target.exists():
            with contextlib.suppress(OSError):  # not made, or in use by another program
                for parent in parents:
                    parent.rmdir()


def _render(source: pathlib.Path, made: pathlib.Path, values: dict[str, str]) -> None:
    """Copies the files of a template; replaces ``{{NAME}}``, as TFX's templates have it.

    The copies do not have the permissions of the installed files, which may be read-only.
    """
    for path in source.rglob("*"):
        if path.is_file() and path.name != _ABOUT and path.suffix != ".pyc":
            text = path.read_text(encoding="utf-8")
            for name, value in values.items():
                text = text.replace(f"{{{{{name}}}}}", value)
            copy = made / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")


def _move(made: pathlib.Path, target: pathlib.Path) -> None:
    """Moves all entries; removes them again if one cannot be moved."""
    created = not target.is_dir()
    target.mkdir(exist_ok=True)
    moved = []
    try:
        for path in sorted(made.iterdir()):
            moved.append(path.rename(target / path.name))
    except BaseException:
        for path in moved:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if created:
            target.rmdir()
        raise
