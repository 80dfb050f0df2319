"""LatestBlessedBaseline: the model that a candidate is compared with."""

from __future__ import annotations

from ml_metadata.metadata_store import MetadataStore
from tfx import types
from tfx.components.evaluator import constants
from tfx.dsl.components.common.resolver import ResolverStrategy
from tfx.dsl.io import fileio


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
