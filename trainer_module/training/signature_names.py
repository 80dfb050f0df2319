"""Gives the inputs of a SavedModel's signatures the names that people chose.

TensorFlow saves a signature under names of ops alone. The format has no such limit: TensorFlow
Serving takes any name in a request, and so does the function that ``tf.saved_model.load`` returns.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterable, Mapping

from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model import fingerprinting_utils

from stagecraft.trainer_module import safe_names


def restore(folder: pathlib.Path, signatures: Mapping[str, Iterable[str]]) -> None:
    """Renames inputs that were saved under the safe names of :func:`safe_names.distinct`.

    In Python, TensorFlow compares names without regard to odd characters. Where these make names
    equal, a call in Python still takes the safe names.

    Args:
        folder: of the SavedModel.
        signatures: the names of the inputs of each signature.
    """
    path = folder / "saved_model.pb"
    names = {
        key: {safe: name for name, safe in safe_names.distinct(given).items() if safe != name}
        for key, given in signatures.items()
    }
    if not any(names.values()):
        return
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    graph = model.meta_graphs[0]
    nodes = graph.object_graph_def.nodes
    [functions] = (each.node_id for each in nodes[0].children if each.local_name == "signatures")
    for child in nodes[functions].children:
        changed = names.get(child.local_name, {})
        inputs = graph.signature_def[child.local_name].inputs
        for safe, name in changed.items():
            inputs[name].CopyFrom(inputs.pop(safe))
        keywords = nodes[child.node_id].bare_concrete_function.argument_keywords
        like = Counter(_argument(changed.get(each, each)) for each in keywords)
        keywords[:] = [
            changed.get(each, each) if like[_argument(changed.get(each, each))] == 1 else each
            for each in keywords
        ]
    path.write_bytes(model.SerializeToString(deterministic=True))
    fingerprinting_utils.write_fingerprint(str(folder))


def _argument(name: str) -> str:
    """The name of an argument that TensorFlow makes of a name in a call."""
    made = "".join(each if each.isalnum() else "_" for each in name)
    return made if made[:1].isalpha() else f"arg_{made}"
