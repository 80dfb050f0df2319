"""Facts about a run that it stores before its first step, so that a failed run has them, too.

They are custom properties of the run's context in ML Metadata. TFX does not change these.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import ml_metadata
from ml_metadata.proto import metadata_store_pb2

_NODES, _SKIPPED = "stagecraft_nodes", "stagecraft_skipped"
_COMMAND, _SETTINGS = "stagecraft_command", "stagecraft_settings"


class Notes(NamedTuple):
    """Notes of one run; an empty field is unknown."""

    nodes: tuple[str, ...] = ()
    """IDs of the pipeline's nodes, in order."""
    skipped: tuple[str, ...] = ()
    """IDs of the nodes that a partial run skips."""
    command: str = ""
    """The command line, without secrets."""
    settings: str = ""
    """YAML of the settings that differ from the default."""


def write(store: ml_metadata.MetadataStore, run_id: str, notes: Notes) -> None:
    """Adds notes to the context of a run."""
    run = store.get_context_by_type_and_name("pipeline_run", run_id)
    run.custom_properties[_NODES].string_value = json.dumps(notes.nodes)
    run.custom_properties[_SKIPPED].string_value = json.dumps(notes.skipped)
    run.custom_properties[_COMMAND].string_value = notes.command
    run.custom_properties[_SETTINGS].string_value = notes.settings
    store.put_contexts([run])


def read(run: metadata_store_pb2.Context) -> Notes:
    """The notes in a run's context."""
    texts = {name: str(value.string_value) for name, value in run.custom_properties.items()}
    return Notes(
        nodes=tuple(json.loads(texts.get(_NODES) or "[]")),
        skipped=tuple(json.loads(texts.get(_SKIPPED) or "[]")),
        command=texts.get(_COMMAND, ""),
        settings=texts.get(_SETTINGS, ""),
    )
