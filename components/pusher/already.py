"""Detects that the newest version already is the model to be pushed.

A Trainer that resumes a finished training exports the same model again. The new artifact has other
bytes, because TensorFlow numbers its traces. So the Pusher compares what the models compute.
"""

from __future__ import annotations

import posixpath
import re

import tensorflow as tf
from google.protobuf import message
from tensorflow.core.protobuf import saved_model_pb2
from tfx import types
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts

from stagecraft.components.metadata import manifest
from stagecraft.components.object_store import filesystem
from stagecraft.components.pusher import owner, versions, warmup
from stagecraft.components.pusher.versions import Version, entries

ALREADY = "already_pushed"  # property of a PushedModel: 1 if an earlier run pushed the model
_GRAPH = "saved_model.pb"
_LEFT_OUT = (_GRAPH, "fingerprint.pb")  # the second has a checksum of the first
_BLOCK = 1 << 20

_TRACED = re.compile(r"\b(__(?:inference|forward|backward)_\w*?)(?:_\d+)+\b")
"""Name of a function, with the numbers that TensorFlow appends."""

_NUMBERED = re.compile(r"\b([A-Za-z]\w*?)_(\d+)\b")
"""Name of a layer or node, with the number that Keras or TensorFlow appends."""


def find(model: str, folder: str) -> Version | None:
    """The newest version, if it is the same model; else None.

    Two SavedModels are the same model if their weights and assets have the same bytes, and their
    graphs differ only in the numbers of names. A version whose files changed after its push is no
    model.
    """
    if "://" in model or "://" in folder:
        filesystem.register()
    try:
        name = owner.newest(entries(folder))
        if name is None:
            return None
        newest = Version(posixpath.join(folder, name), int(name))
        if not _same(model, newest.path) or versions.damages_of(newest.path):
            return None
        return newest
    except (OSError, tf.errors.OpError):  # such as a version that cannot be read
        return None


def lost(pushed: types.Artifact) -> str:
    """Why a PushedModel is not served any more: its version is gone or damaged. Empty: it is.

    Empty, too, if its version is gone and a newer one is served: see :func:`removed`.
    """
    if pushed.type_name != standard_artifacts.PushedModel.TYPE_NAME:
        return ""
    if not pushed.get_int_custom_property("pushed"):
        return ""
    version = pushed.get_string_custom_property("pushed_destination")
    if "://" in version:
        filesystem.register()
    try:
        if not fileio.isdir(version):
            return "" if removed(pushed) else f"{version} is gone"
        if damages := versions.damages_of(version):
            return f"{damages[0].path(version)} {damages[0]}"
        signed = fileio.exists(posixpath.join(version, manifest.FILE))
        # A version of an earlier Stagecraft is compared with the copy in the artifact.
        if not signed and fileio.isdir(pushed.uri) and not _same(pushed.uri, version):
            return f"{version} is damaged"
    except (OSError, tf.errors.OpError) as error:
        return f"{version} cannot be read ({error})"
    return ""


def removed(pushed: types.Artifact) -> str:
    """Why a PushedModel is not there although nothing is lost: a newer version replaced it."""
    folder, _, name = pushed.get_string_custom_property("pushed_destination").rpartition("/")
    known = versions.numbers(folder)
    if not name.isdigit() or int(name) in known or not known or known[0] < int(name):
        return ""
    return f"version {name} was removed, and version {known[0]} is served"


def _same(one: str, other: str) -> bool:
    graphs = [posixpath.join(folder, _GRAPH) for folder in (one, other)]
    if not all(map(fileio.exists, graphs)):
        return False
    # Without the files whose bytes may differ for the same model.
    names, known = (
        {name for name, _ in manifest.paths_of(folder)}.difference(_LEFT_OUT)
        for folder in (one, other)
    )
    # A version may have extra files at its top level, such as a model card, and warm-up requests.
    more = known.difference(names, (warmup.FILE,))
    if not known.issuperset(names) or any("/" in name for name in more):
        return False
    pairs = ((posixpath.join(one, name), posixpath.join(other, name)) for name in sorted(names))
    if not all(_equal(*pair) for pair in pairs):
        return False
    if _equal(*graphs):
        return True
    try:
        ours, theirs = map(_canonical, graphs)
    except message.DecodeError:
        return False
    return ours == theirs


def _equal(one: str, other: str) -> bool:
    with fileio.open(one, "rb") as ours, fileio.open(other, "rb") as theirs:
        while block := ours.read(_BLOCK):
            if block != theirs.read(_BLOCK):
                return False
        return not theirs.read(1)


def _canonical(path: str) -> list[str]:
    """A SavedModel's graphs as text, in which numbers in names start at 0."""
    with fileio.open(path, "rb") as file:
        saved_model = saved_model_pb2.SavedModel.FromString(file.read())
    texts = []
    for graph in saved_model.meta_graphs:
        for function in graph.graph_def.library.function:
            for attributes in function.arg_attr.values():
                attributes.attr.pop("_user_specified_name", None)  # ids of captured tensors
            texts.append(_renumbered(str(function)))
        texts += [_renumbered(str(each)) for each in graph.graph_def.library.gradient]
        graph.graph_def.ClearField("library")
        texts.append(_renumbered(str(graph)))
    return sorted(texts)


def _renumbered(text: str) -> str:
    """Names with numbers in the order in which they occur; constants stay as they are."""
    numbers: dict[str, dict[str, int]] = {}

    def renumber(match: re.Match[str]) -> str:
        known = numbers.setdefault(match[1], {})
        return f"{match[1]}#{known.setdefault(match[2], len(known))}"

    lines = []
    for line in text.splitlines():
        if not line.lstrip().startswith(("string_val:", "tensor_content:")):
            line = _NUMBERED.sub(renumber, _TRACED.sub(r"\1", line))
        lines.append(line)
    return "\n".join(lines)
