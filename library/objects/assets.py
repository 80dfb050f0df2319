"""What layers keep outside of their weights: vocabularies, and numbers that follow from weights."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras


class Vocabulary(NamedTuple):
    """What a lookup has learned. The files that Keras writes lose some of it.

    A line break in a word divides it, and the weights are left out
    (``keras/src/layers/preprocessing/index_lookup.py``).
    """

    words: Sequence[Any]
    """Words or integers by their index, with those for unknown words and masks."""

    idf_weights: Any
    """Inverse document frequencies of ``words``, a float array [words]; None: not ``tf_idf``."""


Assets = Mapping[int, "Vocabulary | Mapping[str, bytes]"]
"""Place of a layer -> vocabulary, or names and contents of the files of its ``save_assets``."""


def read(layers: Sequence[keras.Layer]) -> Assets:
    """The assets of the layers that have some.

    Raises:
        Exception: whatever ``save_assets`` of a user's layer raises.
    """
    found: dict[int, Vocabulary | Mapping[str, bytes]] = {}
    for place, layer in enumerate(layers):
        if isinstance(layer, (keras.layers.StringLookup, keras.layers.IntegerLookup)):
            if layer.get_vocabulary(include_special_tokens=False):
                found[place] = _vocabulary(layer)
        elif isinstance(layer, keras.layers.TextVectorization):
            continue  # its lookup is one of the layers
        elif hasattr(layer, "save_assets"):
            with tempfile.TemporaryDirectory() as folder:
                layer.save_assets(folder)
                files = [each for each in pathlib.Path(folder).rglob("*") if each.is_file()]
                found[place] = {str(each.relative_to(folder)): each.read_bytes() for each in files}
    return found


def _vocabulary(layer: Any) -> Vocabulary:
    words = layer.get_vocabulary()
    has_weights = layer.output_mode == "tf_idf"
    return Vocabulary(words, layer.idf_weights.numpy()[: len(words)] if has_weights else None)


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
    for place, saved in assets.items():
        if isinstance(saved, Vocabulary):
            layers[place].set_vocabulary(saved.words, saved.idf_weights)
            continue
        with tempfile.TemporaryDirectory() as folder:
            for name, content in saved.items():
                file = pathlib.Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            layers[place].load_assets(folder)
