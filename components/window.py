"""SpanWindow: the newest spans of the data, for a training on several of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ml_metadata.metadata_store import MetadataStore
from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.dsl.components.common.resolver import ResolverStrategy
from tfx.dsl.input_resolution.strategies.span_range_strategy import SpanRangeStrategy
from tfx.dsl.io import fileio
from tfx.proto import range_config_pb2

from stagecraft.components.example_gen import spans
from stagecraft.components.metadata import run_metadata

Properties = Mapping[str, Any]


class SpanWindow(ResolverStrategy):
    """The spans of a window, which earlier runs read and checked; none is read again.

    TFX's SpanRangeStrategy takes the newest span of all runs, each artifact of a span, and also
    spans that a gate refused. This one ends at the span of this run, so that a run for an older
    span trains on that one and older ones; of each span, it takes the version that a run read last;
    and it leaves out spans that no gate has passed, that another source or other code read, or
    whose files are gone::

        window = tfx.dsl.Resolver(
            strategy_class=SpanWindow,
            config={"size": 7},
            newest=example_gen.outputs["examples"],
            examples=tfx.dsl.Channel(type=standard_artifacts.Examples),
            anomalies=tfx.dsl.Channel(
                type=standard_artifacts.ExampleAnomalies, producer_component_id=gate.id
            ),
        ).with_id("Window")
        window.add_upstream_node(gate)

    Its output ``examples`` has an artifact for each span. TFX passes them on by their IDs, so their
    order is that in which they were read.
    """

    def __init__(self, size: int):
        """``size``: number of spans, such as days, from the oldest to the newest one."""
        self._size = size

    def resolve_artifacts(
        self, store: MetadataStore, input_dict: dict[str, list[types.Artifact]]
    ) -> dict[str, list[types.Artifact]]:
        """Leaves one artifact for each span in ``examples``, and other keys alone."""
        [newest] = input_dict["newest"]
        last = _properties(newest).get(spans.SPAN)
        if last is None:  # the data have no spans
            return {**input_dict, "examples": [newest]}
        checked = _inputs_of_producers(store, input_dict["anomalies"])
        span_range = range_config_pb2.RangeConfig(
            static_range=range_config_pb2.StaticRange(
                start_span_number=max(0, last - self._size + 1), end_span_number=last
            )
        )
        # Others, such as those of Transform, have no span, which TFX's strategy does not allow.
        named = [each for each in input_dict["examples"] if spans.SERIES in _properties(each)]
        found = SpanRangeStrategy(span_range).resolve_artifacts(store, {"examples": named})
        by_id = {each.id: each for each in (found or {}).get("examples", ()) if each.id in checked}
        there = [key for key in _by_last_use(store, by_id) if fileio.exists(by_id[key].uri)]
        chosen = spans.select(_properties(newest), {key: _properties(by_id[key]) for key in there})
        return {**input_dict, "examples": [*(by_id[key] for key in chosen), newest]}


def _properties(artifact: types.Artifact) -> Properties:
    return run_metadata.of_artifact(artifact.mlmd_artifact)


def _by_last_use(store: MetadataStore, ids: Iterable[int]) -> list[int]:
    """IDs of artifacts in the order of the last runs that made them or took them from the cache."""
    last: dict[int, int] = {}
    for event in store.get_events_by_artifact_ids([*ids]):
        if event.type == metadata_store_pb2.Event.OUTPUT:
            last[event.artifact_id] = max(last.get(event.artifact_id, 0), event.execution_id)
    return sorted(last, key=last.__getitem__)


def _inputs_of_producers(store: MetadataStore, outputs: Iterable[types.Artifact]) -> set[int]:
    """IDs of the artifacts from which others were made."""
    event = metadata_store_pb2.Event
    made = store.get_events_by_artifact_ids([each.id for each in outputs])
    producers = {each.execution_id for each in made if each.type == event.OUTPUT}
    events = store.get_events_by_execution_ids(sorted(producers))
    return {each.artifact_id for each in events if each.type == event.INPUT}
