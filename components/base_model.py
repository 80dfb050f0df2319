"""BaseModel: the model of an earlier run that a training continues (``train.initial_weights``)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable

from ml_metadata.metadata_store import MetadataStore
from tfx import types
from tfx.components.evaluator import constants
from tfx.dsl.components.common.resolver import ResolverStrategy
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts

from stagecraft.common.errors import UserError
from stagecraft.components.metadata.run_metadata import RunMetadata, origin
from stagecraft.components.object_store.permanent_uris import permanent_uri
from stagecraft.trainer_module.settings.train import LAST_BLESSED, LAST_PUSHED, RUN

EXAMPLES = "examples"
"""Custom property of a model: :func:`identity` of the examples that it was trained on."""

SETTING = "train.initial_weights"

_SHOWN = 3  # runs that an error names


class NoModelError(UserError):
    """``train.initial_weights: run:ID`` names a run without a model."""

    def __init__(self, choice: str, problem: str):
        use = "the ID of a run in stagecraft history"
        super().__init__(
            f"{SETTING}: {choice}: {problem}; use {use}",
            setting=SETTING,
            value=choice,
            suggestion=use,
        )


def identity(uris: Iterable[str]) -> str:
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
        same = None if of_run else identity(each.uri for each in input_dict[EXAMPLES])
        again = [number for number, model in models.items() if _examples(model) == same]
        fits = (model for model in found if not again or model.id < min(again))
        chosen = next((model for model in fits if fileio.exists(model.uri)), None)
        if of_run and chosen is None:
            raise NoModelError(self._choice, "there is no such run, or its model is gone")
        others: dict[str, list[types.Artifact]] = {key: [] for key in input_dict if key != EXAMPLES}
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
    return str(model.get_string_custom_property(EXAMPLES))


def channels(choice: str) -> dict[str, types.Channel]:
    """The channels of earlier runs that the strategy reads for a choice, by input key."""
    kinds = {
        LAST_BLESSED: {"model_blessing": standard_artifacts.ModelBlessing},
        LAST_PUSHED: {"pushed_model": standard_artifacts.PushedModel},
    }
    given = {"model": standard_artifacts.Model, **kinds.get(choice, {})}
    return {key: types.Channel(type=kind) for key, kind in given.items()}
