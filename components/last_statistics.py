"""LastStatistics: statistics of the last data that AnomalyGate let pass."""

from __future__ import annotations

from ml_metadata.metadata_store import MetadataStore
from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.dsl.components.common.resolver import ResolverStrategy
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts

from stagecraft.components.metadata.run_metadata import origin

CHOICE = "statistics"
"""Of the step that replaces the resolver on Kubeflow."""


class LastStatistics(ResolverStrategy):
    """The statistics of the last run whose data AnomalyGate let pass, before those of this run.

    A day whose data were stopped is no measure for the next one. A run that is repeated gets the
    same statistics as before::

        last_statistics = tfx.dsl.Resolver(
            strategy_class=LastStatistics,
            config={"choice": "statistics"},
            statistics=statistics_gen.outputs["statistics"],
            earlier=tfx.dsl.Channel(type=standard_artifacts.ExampleStatistics),
            anomalies=tfx.dsl.Channel(type=standard_artifacts.ExampleAnomalies),
        ).with_id("LastStatistics")

    The output ``earlier`` is empty if there are none.
    """

    def __init__(self, choice: str = CHOICE):
        """``choice``: always ``statistics``."""
        self._choice = choice

    def resolve_artifacts(
        self, store: MetadataStore, input_dict: dict[str, list[types.Artifact]]
    ) -> dict[str, list[types.Artifact]]:
        """Leaves one artifact at most in ``earlier``, and none in ``anomalies``."""
        known = {each.id: each for each in input_dict["earlier"]}
        verdicts = {int(each.id) for each in input_dict["anomalies"]}
        again = verdicts & _made_from(store, [int(each.id) for each in input_dict["statistics"]])
        kind, found = standard_artifacts.ExampleStatistics.TYPE_NAME, []
        # From the newest on: the number of queries does not grow with that of the runs.
        for verdict in sorted(verdicts, reverse=True):
            if again and verdict >= min(again):
                continue
            # The gate's own input "earlier" is older than the statistics that it checked.
            newest = known.get(max(origin(store, verdict, kind), default=0))
            if newest and fileio.exists(newest.uri):
                found = [newest]
                break
        return {**input_dict, "earlier": found, "anomalies": []}


def _made_from(store: MetadataStore, ids: list[int]) -> set[int]:
    """IDs of all that executions made which read one of the artifacts."""
    event = metadata_store_pb2.Event
    read = store.get_events_by_artifact_ids(ids)
    readers = sorted({each.execution_id for each in read if each.type == event.INPUT})
    made = store.get_events_by_execution_ids(readers) if readers else []
    return {each.artifact_id for each in made if each.type == event.OUTPUT}
