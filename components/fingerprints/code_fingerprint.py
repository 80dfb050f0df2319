"""A fingerprint of code named by a dotted path, for TFX's cache keys.

TFX caches a component by its inputs and execution properties. A dotted path among those
says nothing about the code behind it: edit the code and the old result is served. So the
fingerprint travels beside the path, as one more execution property.

The reader is static: it parses sources and asks the import system's finders where modules
lie, and executes nothing of what it reads. Hence what is imported by a name computed at run
time (``importlib.import_module(name)``) is not seen; give such modules as further roots.
Imports under ``if TYPE_CHECKING:`` never run and are not followed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import pathlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec

from stagecraft.components.fingerprints.content_digest import files_digest
from stagecraft.schemas.errors import UserError

_OURS = "stagecraft"
_INSTALLED = {"site-packages", "dist-packages"}
_STDLIB = {pathlib.Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}


def code_fingerprint(*dotted: str, files: Sequence[str] = ()) -> str:
    """Digest of the named code and of everything of the user's and ours that it imports.

    Hashed are the sources of the modules that hold the names, of the packages around them,
    and of what these import at any depth, as long as it is first-party: a module of
    ``stagecraft``, of a named root's own top-level package, or one whose file lies neither
    in the standard library nor in site-packages.

    Args:
      *dotted: ``package.module``, ``package.module.function`` or ``package.module:function``.
      files: paths of files that the code reads. Their contents count as sources do.

    Returns:
      16 hexadecimal digits. They depend on module names, sources and contents, not on folders, so
      they agree between machines.

    Raises:
      UserError: a name is not found, or a source or a file cannot be read, or not parsed.
    """
    importlib.invalidate_caches()  # a file written a moment ago must be seen
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
            raise UserError(
                f"{error.filename or files[0]}: cannot read this file, which {dotted[-1]} reads: "
                f"{error.strerror or error}. It is needed to tell whether cached results are "
                "still right."
            ) from None
    return digest.hexdigest()[:16]


def check_exists(dotted: str) -> None:
    """Looks for a module and a name in it; imports nothing.

    Args:
      dotted: as :func:`code_fingerprint` takes it.

    Raises:
      UserError: as :func:`code_fingerprint`.
    """
    importlib.invalidate_caches()
    _resolve_root(dotted)


def imported_names(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[str]:
    """Absolute dotted names that a module's code imports, at any depth of its syntax tree.

    ``from a import b`` yields ``a.b``: whether ``b`` is a module is for the caller to find out.

    Args:
      tree: the parsed module.
      module: its dotted name, against which relative imports are resolved.
      is_package: whether it is a package's ``__init__``.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                around = parts[: len(parts) - node.level + is_package]
                base = ".".join([*around, base] if base else around)
            yield from (base if name.name == "*" else f"{base}.{name.name}" for name in node.names)
        elif isinstance(node, ast.If) and _names_type_checking(node.test):
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _names_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test).rpartition(".")[2] == "TYPE_CHECKING" and isinstance(
        test, (ast.Name, ast.Attribute)
    )


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
            if spec.name in sources:
                continue
            if not _is_first_party(spec, first_party):
                break  # nothing below a third party's package is ours
            if not spec.has_location or spec.origin is None:
                continue  # a namespace package has no code of its own
            source = sources[spec.name] = _read(spec.name, spec.origin)
            if spec.origin.endswith(".py"):
                is_package = spec.submodule_search_locations is not None
                waiting.extend(_imports(source, spec.origin, spec.name, is_package))


@functools.cache
def _imports(source: bytes, origin: str, module: str, is_package: bool) -> frozenset[str]:
    """What a source imports. A pipeline's components have most of their code in common."""
    return frozenset(imported_names(_parse(source, origin), module, is_package=is_package))


def _resolve_root(dotted: str) -> str:
    """The module that holds a name; the part after it must be bound somewhere in its source."""
    path, colon, attribute = dotted.partition(":")
    specs = list(_modules_along(path))
    found = specs[-1].name if specs else ""
    missing = path[len(found) :].strip(".")
    if not found or (colon and missing) or not specs[-1].has_location:
        name = path[: path.find(".", len(found) + 1)] if "." in missing else path
        where = _search_path(specs[-1] if specs else None)
        raise UserError(
            f"{dotted}: there is no module {name!r} in {', '.join(where) or 'any folder'}; "
            "expected package.module:function. Check the spelling, or put the folder that holds "
            "it on PYTHONPATH."
        )
    wanted = (attribute or missing).partition(".")[0]
    origin = specs[-1].origin or ""
    if wanted and origin.endswith(".py"):
        bound = _bound_names(_parse(_read(found, origin), origin))
        if not bound & {wanted, "*", "__getattr__"}:
            raise UserError(
                f"{dotted}: module {found} ({origin}) has no {wanted!r}. Define it there, or "
                "correct the name."
            )
    return found


def _bound_names(tree: ast.AST) -> set[str]:
    """Every name that code binds, at any depth: generous, so that only sure misses are refused."""
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
    name, locations = "", None
    for part in dotted.split("."):
        if not part.isidentifier():
            return
        name = f"{name}.{part}" if name else part
        spec = _find(name, locations)
        if spec is None:
            return
        yield spec
        if spec.submodule_search_locations is None:
            return
        locations = list(spec.submodule_search_locations)


def _find(name: str, locations: Sequence[str] | None) -> ModuleSpec | None:
    # importlib.util.find_spec imports the packages around a module; the finders do not.
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec(name, locations) if find_spec else None
        if spec is not None:
            return spec
    return None


def _is_first_party(spec: ModuleSpec, first_party: set[str]) -> bool:
    if spec.name.partition(".")[0] in first_party:
        return True
    if spec.has_location and spec.origin is not None:
        return _is_users(spec.origin)
    return any(map(_is_users, spec.submodule_search_locations or ()))


def _is_users(path: str) -> bool:
    """Whether a file or folder lies neither in the standard library nor in site-packages."""
    resolved = pathlib.Path(path).resolve()
    return not _INSTALLED & set(resolved.parts) and not _STDLIB & set(resolved.parents)


def _search_path(package: ModuleSpec | None) -> list[str]:
    if package is None:
        entries = [entry or "." for entry in sys.path]
    else:
        entries = list(package.submodule_search_locations or [package.origin or ""])
    return [entry for entry in entries if pathlib.Path(entry).exists()]  # no finders' markers


def _read(name: str, origin: str) -> bytes:
    try:
        return pathlib.Path(origin).read_bytes()
    except OSError as error:
        raise UserError(
            f"{origin}: cannot read the source of module {name}: {error.strerror or error}. "
            "It is needed to tell whether cached results are still right."
        ) from None


def _parse(source: bytes, origin: str) -> ast.Module:
    try:
        return ast.parse(source, origin)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{origin}, line {line}" if line else origin
        raise UserError(f"{where}: not valid Python: {getattr(error, 'msg', error)}.") from None
