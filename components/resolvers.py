"""Resolvers: artifacts of earlier runs that a run reads.

:class:`LatestBlessedBaseline` finds the model that a candidate is compared with,
:class:`SpanWindow` the newest spans of the data, :class:`LastStatistics` the statistics of the last
data that AnomalyGate let pass, and :class:`BaseModel` the model that a training continues
(``train.initial_weights``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ml_metadata.metadata_store import MetadataStore
from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.components.evaluator import constants
from tfx.dsl.components.common.resolver import ResolverStrategy
from tfx.dsl.input_resolution.strategies.span_range_strategy import SpanRangeStrategy
from tfx.dsl.io import fileio
from tfx.proto import range_config_pb2
from tfx.types import standard_artifacts

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen import spans
from stagecraft.components.metadata import run_metadata
from stagecraft.components.metadata.run_metadata import RunMetadata, origin, sources
from stagecraft.components.object_store.location import permanent_uri
from stagecraft.trainer_module.settings.train import LAST_BLESSED, LAST_PUSHED, RUN

Properties = Mapping[str, Any]

STATISTICS = "statistics"
"""Of the step that replaces the resolver on Kubeflow."""

EXAMPLES_PROPERTY = "examples"
"""Custom property of a model: :func:`examples_identity` of the examples that it was trained on."""

_BASE_MODEL_SETTING = "train.initial_weights"

_SHOWN = 3  # runs that an error names


class LatestBlessedBaseline(ResolverStrategy):
    """The last blessed model, except the candidate itself.

    Once the candidate is blessed, TFX's LatestBlessedModelStrategy returns the candidate as its own
    baseline. This new input makes the Evaluator run again although nothing changed. Without the
    candidate, the baseline stays the same as long as the candidate does::

        baseline = tfx.dsl.Resolver(
            strategy_class=LatestBlessedBaseline,
            candidate=trainer.outputs["model"],
            model=tfx.dsl.Channel(type=standard_artifacts.Model),
            model_blessing=tfx.dsl.Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("Baseline")

    Its outputs ``model`` and ``model_blessing`` are empty if there is no such model. The Evaluator
    then has no baseline.
    """

    def resolve_artifacts(
        self, store: MetadataStore, input_dict: dict[str, list[types.Artifact]]
    ) -> dict[str, list[types.Artifact]]:
        """Leaves one artifact at most in ``model`` and ``model_blessing``, and other keys alone."""
        candidates = {artifact.id for artifact in input_dict["candidate"]}
        models = {
            model.id: model
            for model in input_dict["model"]
            if model.id not in candidates and fileio.exists(model.uri)
        }
        # Sort by blessing, not by model: a model trained earlier may be blessed again later.
        for blessing in sorted(input_dict["model_blessing"], key=lambda each: -int(each.id)):
            model_id = blessing.get_int_custom_property(
                constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY
            )
            blessed = blessing.get_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY)
            if blessed and model_id in models:
                return {**input_dict, "model": [models[model_id]], "model_blessing": [blessing]}
        return {**input_dict, "model": [], "model_blessing": []}


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
        checked = sources(store, [each.id for each in input_dict["anomalies"]])
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

    def __init__(self, choice: str = STATISTICS):
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


class NoModelError(UserError):
    """``train.initial_weights: run:ID`` names a run without a model."""

    def __init__(self, choice: str, problem: str):
        use = "the ID of a run in stagecraft history"
        super().__init__(
            f"{_BASE_MODEL_SETTING}: {choice}: {problem}; use {use}",
            setting=_BASE_MODEL_SETTING,
            value=choice,
            suggestion=use,
        )


def examples_identity(uris: Iterable[str]) -> str:
    """16 hexadecimal digits that identify artifacts by their permanent URIs, in any order."""
    text = json.dumps(sorted(map(permanent_uri, uris)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class BaseModel(ResolverStrategy):
    """The last blessed model, the last pushed one, or that of a run.

    If there is a model that was trained on the examples of this run, only older models are among
    the first two: a run that is repeated starts where it started before, and is cached::

        base_model = tfx.dsl.Resolver(
            strategy_class=BaseModel,
            config={"choice": "last_blessed"},
            examples=transform.outputs["transformed_examples"],
            model=tfx.dsl.Channel(type=standard_artifacts.Model),
            model_blessing=tfx.dsl.Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("BaseModel")

    For ``last_pushed``, the channel ``pushed_model`` replaces ``model_blessing``. The output
    ``model`` is empty if there is no such model.
    """

    def __init__(self, choice: str):
        """``choice``: ``last_blessed``, ``last_pushed``, or ``run:`` and the start of an ID."""
        self._choice = choice

    def resolve_artifacts(
        self, store: MetadataStore, input_dict: dict[str, list[types.Artifact]]
    ) -> dict[str, list[types.Artifact]]:
        """Leaves one artifact at most in ``model``, none in the channels of verdicts.

        Raises:
            NoModelError: the run has no model, or no model any more; or several runs have an ID
                that begins so.
        """
        models = {model.id: model for model in input_dict["model"]}
        found = (models[number] for number in self._ids(store, input_dict) if number in models)
        of_run = self._choice.startswith(RUN)
        same = (
            None
            if of_run
            else examples_identity(each.uri for each in input_dict[EXAMPLES_PROPERTY])
        )
        again = [number for number, model in models.items() if _examples(model) == same]
        fits = (model for model in found if not again or model.id < min(again))
        chosen = next((model for model in fits if fileio.exists(model.uri)), None)
        if of_run and chosen is None:
            raise NoModelError(self._choice, "there is no such run, or its model is gone")
        others: dict[str, list[types.Artifact]] = {
            key: [] for key in input_dict if key != EXAMPLES_PROPERTY
        }
        return {**input_dict, **others, "model": [chosen] if chosen else []}

    def _ids(
        self, store: MetadataStore, input_dict: dict[str, list[types.Artifact]]
    ) -> Iterable[int]:
        """IDs of all models that fit the choice, the newest verdict first."""
        if self._choice.startswith(RUN):
            runs = RunMetadata.matching(store, self._choice.removeprefix(RUN))
            if len(runs) > 1:
                problem = f"{len(runs)} runs have an ID that begins so: {_listed(runs)}"
                raise NoModelError(self._choice, problem)
            return [int(each.id) for run in runs for each in run.outputs()][::-1]

        def newest(key: str, fits: Callable[[types.Artifact], int]) -> list[types.Artifact]:
            return sorted(filter(fits, input_dict[key]), key=lambda each: -int(each.id))

        if self._choice == LAST_BLESSED:
            blessed = constants.ARTIFACT_PROPERTY_BLESSED_KEY
            model_id = constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY
            blessings = newest("model_blessing", lambda each: each.get_int_custom_property(blessed))
            return [each.get_int_custom_property(model_id) for each in blessings]
        pushes = newest("pushed_model", lambda each: each.get_int_custom_property("pushed"))
        # Only as many queries as it takes to find one.
        return (number for each in pushes for number in _pushed(store, each.id))


def _listed(runs: list[RunMetadata]) -> str:
    names = [str(run.context.name) for run in runs[:_SHOWN]]
    return ", ".join(names) + (" …" if len(runs) > _SHOWN else "")


def _pushed(store: MetadataStore, pushed_id: int) -> list[int]:
    """ID of the model of a PushedModel; a rollback pushes one that was pushed before."""
    restored = origin(store, pushed_id, standard_artifacts.PushedModel.TYPE_NAME)
    return origin(store, pushed_id, standard_artifacts.Model.TYPE_NAME) or [
        number for each in restored for number in _pushed(store, each)
    ]


def _examples(model: types.Artifact) -> str:
    return str(model.get_string_custom_property(EXAMPLES_PROPERTY))


def base_model_channels(choice: str) -> dict[str, types.Channel]:
    """The channels of earlier runs that the strategy reads for a choice, by input key."""
    kinds = {
        LAST_BLESSED: {"model_blessing": standard_artifacts.ModelBlessing},
        LAST_PUSHED: {"pushed_model": standard_artifacts.PushedModel},
    }
    given = {"model": standard_artifacts.Model, **kinds.get(choice, {})}
    return {key: types.Channel(type=kind) for key, kind in given.items()}
