"""What a run notes of itself before its first step, so that a run that failed has it, too.

Custom properties of the run's context in ML Metadata, which TFX leaves alone.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import ml_metadata
from ml_metadata.proto import metadata_store_pb2

_NODES, _SKIPPED = "stagecraft_nodes", "stagecraft_skipped"
_COMMAND, _SETTINGS = "stagecraft_command", "stagecraft_settings"


class Notes(NamedTuple):
    """Of one run; empty where nothing is known."""

    nodes: tuple[str, ...] = ()
    """The pipeline's, in order."""

    skipped: tuple[str, ...] = ()
    """Those that a partial run leaves out."""

    command: str = ""
    """The command line, without secrets."""

    settings: str = ""
    """YAML of the settings that are not the default."""


def write(store: ml_metadata.MetadataStore, run_id: str, notes: Notes) -> None:
    """Adds notes to a run whose context is there.

    Args:
        store: opened to be written.
        run_id: name of the context.
        notes: of the run.
    """
    run = store.get_context_by_type_and_name("pipeline_run", run_id)
    run.custom_properties[_NODES].string_value = json.dumps(notes.nodes)
    run.custom_properties[_SKIPPED].string_value = json.dumps(notes.skipped)
    run.custom_properties[_COMMAND].string_value = notes.command
    run.custom_properties[_SETTINGS].string_value = notes.settings
    store.put_contexts([run])


def read(run: metadata_store_pb2.Context) -> Notes:
    """What is noted in a run's context."""

    def text(name: str) -> str:
        return str(run.custom_properties[name].string_value) if name in properties else ""

    properties = run.custom_properties
    return Notes(
        nodes=tuple(json.loads(text(_NODES) or "[]")),
        skipped=tuple(json.loads(text(_SKIPPED) or "[]")),
        command=text(_COMMAND),
        settings=text(_SETTINGS),
    )
