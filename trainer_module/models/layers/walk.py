"""Walks through the layers of a model, and intercepts their calls."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def walk(model: Any) -> Iterator[tuple[str, Any]]:
    """Every inner layer, once, with its path; Keras gives paths only to layers with weights."""
    return _walk(model, "", set())


def _walk(layer: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    names: Counter[str] = Counter()
    # Private, but the only list of a layer's inner layers; `Model.layers` makes the same call.
    for child in layer._flatten_layers(include_self=False, recursive=False):
        path = f"{prefix}{child.name}"
        if names[child.name]:  # allowed outside functional models
            path += f":{names[child.name]}"
        names[child.name] += 1
        if id(child) not in seen:
            seen.add(id(child))
            yield path, child
            yield from _walk(child, f"{path}/", seen)


@contextlib.contextmanager
def intercepted(
    layers: Iterable[Any], wrap: Callable[[Any, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replaces each layer's ``call`` by ``wrap(layer, call)`` in the block."""
    replaced = []
    try:
        for layer in layers:
            replaced.append((layer, vars(layer).get("call")))
            layer.call = wrap(layer, layer.call)
        yield
    finally:
        for layer, before in replaced:
            if before is None:
                del layer.call
            else:
                layer.call = before
