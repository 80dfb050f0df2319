"""Fingerprints of code, for TFX's cache keys.

TFX caches a component by its inputs and execution properties. If a property is only a dotted path,
TFX serves the old result after an edit of the code. So components add a fingerprint of the code as
one more execution property.

The fingerprint is static: it parses sources, locates modules by the import system's finders, and
executes none of them. It cannot see imports by a name computed at run time
(``importlib.import_module(name)``); pass such modules as further roots. It skips imports under
``if TYPE_CHECKING:``, which never run, but for Stagecraft's public names: a package imports those
that code uses.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import os
import pathlib
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from stagecraft.common import lazy
from stagecraft.common.errors import UserError

_OURS = "stagecraft"
_INSTALLED = {"site-packages", "dist-packages"}
_STDLIB = {pathlib.Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}


def code_fingerprint(*dotted: str, files: Sequence[str] = ()) -> str:
    """Digest of the named code and of all first-party code that it imports.

    It covers the sources of the modules that contain the names, of their packages, and of their
    imports at any depth. First-party are modules of ``stagecraft``, of a named root's top-level
    package, and those outside the standard library and site-packages.

    Args:
      *dotted: ``package.module``, ``package.module.function`` or ``package.module:function``.
      files: paths of files that the code reads; their contents count, too.

    Returns:
      16 hexadecimal digits. They depend on module names, sources and contents, but not on folders,
      so they are the same on all machines.

    Raises:
      UserError: a name does not exist, or a source or file cannot be read or parsed.
    """
    importlib.invalidate_caches()  # to see files that are new
    roots = [_resolve_root(name) for name in dotted]
    first_party = {_OURS} | {root.partition(".")[0] for root in roots}
    sources: dict[str, bytes] = {}
    _collect(roots, first_party, sources)
    digest = hashlib.sha256()
    for name, source in sorted(sources.items()):
        digest.update(f"{name} {hashlib.sha256(source).hexdigest()}\n".encode())
    if files:
        try:
            digest.update(f"files {files_digest(files)}\n".encode())
        except OSError as error:
            file, name = error.filename or files[0], f"a file of {dotted[-1]}"
            raise _unreadable(file, name, error) from None
    return digest.hexdigest()[:16]


def check_exists(dotted: str) -> None:
    """Checks that a module and a name in it exist; imports nothing."""
    importlib.invalidate_caches()
    _resolve_root(dotted)


def imported_names(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[str]:
    """Absolute dotted names that code imports at any depth; ``from a import b`` yields ``a.b``."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                names = module.split(".")
                package = names[: len(names) - node.level + is_package]
                base = ".".join([*package, base] if base else package)
            yield from (base if name.name == "*" else f"{base}.{name.name}" for name in node.names)
        elif (
            isinstance(node, ast.If)
            and isinstance(node.test, (ast.Name, ast.Attribute))
            and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING"
        ):
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _collect(names: Iterable[str], first_party: set[str], sources: dict[str, bytes]) -> None:
    """Adds ``{module: source}`` of the names' modules and of their transitive imports."""
    waiting = list(names)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for spec in _modules_along(name):
            waiting.extend(_exported(spec, name))
            if spec.name in sources:
                continue
            if not _is_first_party(spec, first_party):
                break  # modules below a third-party package are third-party, too
            if not spec.has_location or spec.origin is None:
                continue  # a namespace package has no code of its own
            source = sources[spec.name] = _read(spec.name, spec.origin)
            if spec.origin.endswith(".py"):
                is_package = spec.submodule_search_locations is not None
                waiting.extend(_imports(source, spec.origin, spec.name, is_package))


def _exported(spec: ModuleSpec, name: str) -> Iterator[str]:
    """The full name of a public name of one of Stagecraft's packages."""
    attribute, _, rest = name[len(spec.name) + 1 :].partition(".")
    if attribute and spec.origin and spec.name.partition(".")[0] == _OURS:
        found = _exports(_read(spec.name, spec.origin), spec.origin).get(attribute)
        if found:
            yield ".".join((*found, rest) if rest else found)


@functools.cache
def _exports(source: bytes, origin: str) -> dict[str, tuple[str, str]]:
    """The names that a package of Stagecraft imports on first use."""
    is_lazy = b"lazy.exports(__name__)" in source
    return lazy.exported(_parse(source, origin)) if is_lazy else {}


@functools.cache
def _imports(source: bytes, origin: str, module: str, is_package: bool) -> frozenset[str]:
    """Imports of a source, and the names that it uses of Stagecraft's packages.

    It is cached, because components share most of their code.
    """
    tree = _parse(source, origin)
    return frozenset([*imported_names(tree, module, is_package=is_package), *_used(tree)])


def _used(tree: ast.AST) -> Iterator[str]:
    """Attributes of Stagecraft's packages in code: ``stagecraft.fit``, for ``sc.fit(…)``."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            bound |= {x.asname: x.name for x in node.names if x.asname}
            bound |= {top: top for x in node.names if (top := x.name.partition(".")[0])}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            bound |= {x.asname or x.name: f"{node.module}.{x.name}" for x in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            if bound.get(first, "").partition(".")[0] == _OURS:
                yield ".".join((bound[first], *rest))


def _resolve_root(dotted: str) -> str:
    """The name with dots alone; the source of its module must bind the rest of it."""
    path, colon, attribute = dotted.partition(":")
    specs = list(_modules_along(path))
    module = specs[-1].name if specs else ""
    missing = path[len(module) :].strip(".")
    if not module or (colon and missing) or not specs[-1].has_location:
        name = path[: path.find(".", len(module) + 1)] if "." in missing else path
        where = _search_path(specs[-1] if specs else None)
        raise UserError(
            f"{dotted}: found no module {name!r} in {', '.join(where) or 'any folder'}. Use the "
            "form package.module:function, and add the module's folder to PYTHONPATH.",
            value=dotted,
            record=name,
        )
    wanted = (attribute or missing).partition(".")[0]
    origin = specs[-1].origin or ""
    if wanted and origin.endswith(".py"):
        bound = _bound_names(_parse(_read(module, origin), origin))
        if not bound & {wanted, "*", "__getattr__"}:
            raise UserError(
                f"{dotted}: module {module} ({origin}) has no {wanted!r}. Define it there, or "
                "correct the name.",
                value=dotted,
                file=origin,
                record=wanted,
            )
    return dotted.replace(":", ".")


def _bound_names(tree: ast.AST) -> set[str]:
    """All names that code binds, at any depth. A name outside them is certainly an error."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


def _modules_along(dotted: str) -> Iterator[ModuleSpec]:
    """Specs of ``a``, ``a.b``, ``a.b.c``, as far as these are modules; imports none of them."""
    name = ""
    locations: list[str] | None = None
    for part in dotted.split("."):
        if not part.isidentifier():
            return
        name = f"{name}.{part}" if name else part
        # importlib.util.find_spec imports parent packages; the finders do not.
        finders = (each for each in sys.meta_path if hasattr(each, "find_spec"))
        try:
            specs = (finder.find_spec(name, locations) for finder in finders)
            spec = next((each for each in specs if each is not None), None)
        except KeyError:  # Python's finder wants the parent of a namespace package imported
            folders = [pathlib.Path(each, part) for each in locations or ()]
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(each) for each in folders if each.is_dir()]
        if spec is None:
            return
        yield spec
        if spec.submodule_search_locations is None:
            return
        locations = list(spec.submodule_search_locations)


def _is_first_party(spec: ModuleSpec, first_party: set[str]) -> bool:
    if spec.name.partition(".")[0] in first_party:
        return True
    if spec.has_location and spec.origin is not None:
        return _is_users(spec.origin)
    return any(map(_is_users, spec.submodule_search_locations or ()))


def _is_users(path: str) -> bool:
    """Whether a file or folder is outside the standard library and site-packages."""
    resolved = pathlib.Path(path).resolve()
    return not _INSTALLED & set(resolved.parts) and not _STDLIB & set(resolved.parents)


def _search_path(package: ModuleSpec | None) -> list[str]:
    if package is None:
        entries = [entry or "." for entry in sys.path]
    else:
        entries = list(package.submodule_search_locations or [package.origin or ""])
    return [each for each in entries if pathlib.Path(each).exists()]  # no markers of finders


def _read(name: str, origin: str) -> bytes:
    try:
        return pathlib.Path(origin).read_bytes()
    except OSError as error:
        raise _unreadable(origin, f"the source of module {name}", error) from None


def _unreadable(file: str, name: str, error: OSError) -> UserError:
    return UserError(
        f"{file}: cannot read {name}: {error.strerror or error}. Stagecraft needs it to check "
        "whether cached results are up to date.",
        file=file,
    )


def _parse(source: bytes, origin: str) -> ast.Module:
    try:
        return ast.parse(source, origin)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{origin}, line {line}" if line else origin
        raise UserError(
            f"{where}: not valid Python: {getattr(error, 'msg', error)}.",
            file=origin,
            record=str(line or ""),
        ) from None


# Digests of files and folders: artifacts and weights are identified by content.


_Signature = tuple[int, int, int, int]
_known: dict[str, tuple[_Signature, str]] = {}
"""Digests of local files that this process has read."""

_CLOCK_NS = 100_000_000
"""Nanoseconds by which the times of files may lag behind the clock. A file that changed just before
it was read may change again without another time."""


def file_digest(path: str) -> str:
    """SHA-256 of a file's content, 64 hexadecimal digits; ``path`` may be an address.

    Reads a local file again only if its size, times or inode differ from those at the last reading.
    """
    begin = time.time_ns()
    before = _signature(path)
    known = _known.get(path)
    if before and known and known[0] == before:
        return known[1]
    digest = hashlib.sha256()
    with _opened(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    found = digest.hexdigest()
    if before and before == _signature(path) and max(before[1:3]) < begin - _CLOCK_NS:
        _known[path] = before, found
    return found


def _signature(path: str) -> _Signature | None:
    """Identity of a version of a local file; None for an address."""
    if "://" in path:
        return None
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def folder_digest(folder: str) -> str:
    """SHA-256 of all files below ``folder``: relative paths and contents."""
    from tfx.dsl.io import fileio  # imports TensorFlow

    paths = [
        os.path.join(parent, name) for parent, _, names in fileio.walk(folder) for name in names
    ]
    return _of_files(sorted(paths), folder)


def files_digest(paths: Iterable[str]) -> str:
    """SHA-256 of local files: their contents, and their paths relative to each other."""
    ordered = sorted(paths)
    parent = os.path.commonpath([os.path.dirname(path) for path in ordered])
    return _of_files(ordered, parent)


def _of_files(paths: list[str], folder: str) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{os.path.relpath(path, folder)} {file_digest(path)}\n".encode())
    return digest.hexdigest()


def _opened(path: str) -> Any:
    if "://" not in path:
        return open(path, "rb")
    from tfx.dsl.io import fileio  # imports TensorFlow

    return fileio.open(path, "rb")
