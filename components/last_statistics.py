"""LastStatistics: statistics of the last data that AnomalyGate let pass."""

from __future__ import annotations

from ml_metadata.metadata_store import MetadataStore
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
        known = {each.id: each for each in input_dict["earlier"] if fileio.exists(each.uri)}
        own = {each.id for each in input_dict["statistics"]}
        kind, found = standard_artifacts.ExampleStatistics.TYPE_NAME, []
        for verdict in sorted(input_dict["anomalies"], key=lambda each: int(each.id)):
            checked = origin(store, verdict.id, kind)
            # The gate's own input "earlier" is older than the statistics that it checked.
            newest = max(checked, default=None)
            if newest in own:
                break
            found += [known[newest]] if newest in known else []
        return {**input_dict, "earlier": found[-1:], "anomalies": []}
