"""Facts about a run that it stores before its first step, so that a failed run has them, too.

They are custom properties of the run's context in ML Metadata. TFX does not change these.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import ml_metadata
from ml_metadata.proto import metadata_store_pb2

_PREFIX = "stagecraft_"


class Notes(NamedTuple):
    """Notes of one run; an empty field is unknown."""

    nodes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()  # IDs of the nodes that a partial run skips
    command: str = ""  # the command line, without secrets
    settings: str = ""  # YAML of the settings that differ from the default


def write(store: ml_metadata.MetadataStore, run_id: str, notes: Notes) -> None:
    """Adds notes to the context of a run."""
    run = store.get_context_by_type_and_name("pipeline_run", run_id)
    for name, value in notes._asdict().items():
        text = value if isinstance(value, str) else json.dumps(value)
        run.custom_properties[f"{_PREFIX}{name}"].string_value = text
    store.put_contexts([run])


def read(run: metadata_store_pb2.Context) -> Notes:
    """The notes in a run's context."""
    texts = {
        name.removeprefix(_PREFIX): value.string_value
        for name, value in run.custom_properties.items()
        if name.removeprefix(_PREFIX) in Notes._fields and value.string_value
    }
    lists = {name: tuple(json.loads(texts[name])) for name in ("nodes", "skipped") if name in texts}
    return Notes(**texts | lists)
