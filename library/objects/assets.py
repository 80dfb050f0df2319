"""What layers keep outside of their weights: vocabularies, and numbers that follow from weights."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Mapping, Sequence

import keras

Assets = Mapping[int, Mapping[str, bytes]]
"""Place of a layer -> contents of the files that its ``save_assets`` writes, by their names."""


def read(layers: Sequence[keras.Layer]) -> Assets:
    """The assets of the layers that have some, such as the vocabulary of a ``StringLookup``."""
    found = {}
    for place, layer in enumerate(layers):
        if hasattr(layer, "save_assets"):
            with tempfile.TemporaryDirectory() as folder:
                layer.save_assets(folder)
                files = [each for each in pathlib.Path(folder).rglob("*") if each.is_file()]
                found[place] = {str(each.relative_to(folder)): each.read_bytes() for each in files}
    return found


def restore(layers: Sequence[keras.Layer], assets: Assets) -> None:
    """Loads assets into copies of the layers, which have the weights of the layers already.

    ``Normalization`` and a user's own layers derive tensors from weights that they load, so such
    layers load their own weights.
    """
    for layer in layers:
        loads = type(layer).load_own_variables
        is_own = not loads.__module__.startswith("keras.")
        if is_own or isinstance(layer, keras.layers.Normalization):
            store: dict[str, object] = {}
            layer.save_own_variables(store)
            layer.load_own_variables(store)
    for place, files in assets.items():
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                file = pathlib.Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            layers[place].load_assets(folder)
