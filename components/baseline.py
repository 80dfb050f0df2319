"""LatestBlessedBaseline: which model a candidate has to measure up to."""

from __future__ import annotations

from ml_metadata.metadata_store import MetadataStore
from tfx import types
from tfx.components.evaluator import constants
from tfx.dsl.components.common.resolver import ResolverStrategy
from tfx.dsl.io import fileio


class LatestBlessedBaseline(ResolverStrategy):
    """The model blessed last, other than the candidate itself.

    TFX's LatestBlessedModelStrategy offers, once the candidate has been blessed, the candidate
    as its own baseline: a new input for the Evaluator, which runs again although nothing
    changed. Leaving it out keeps the baseline the same for as long as the candidate is::

        baseline = tfx.dsl.Resolver(
            strategy_class=LatestBlessedBaseline,
            candidate=trainer.outputs["model"],
            model=tfx.dsl.Channel(type=standard_artifacts.Model),
            model_blessing=tfx.dsl.Channel(type=standard_artifacts.ModelBlessing),
        ).with_id("Baseline")

    Its outputs ``model`` and ``model_blessing`` are empty where there is no such model, which
    the Evaluator takes as "no baseline".
    """

    def resolve_artifacts(
        self, store: MetadataStore, input_dict: dict[str, list[types.Artifact]]
    ) -> dict[str, list[types.Artifact]]:
        """Picks the baseline.

        Args:
          store: not used; all that is needed is in the artifacts.
          input_dict: ``candidate`` (usually one Model), ``model`` (all Models of the pipeline) and
            ``model_blessing`` (all ModelBlessings). Other inputs are handed on as they are.

        Returns:
          The same keys, with at most one artifact each in ``model`` and ``model_blessing``.
        """
        candidates = {artifact.id for artifact in input_dict["candidate"]}
        models = {
            model.id: model
            for model in input_dict["model"]
            if model.id not in candidates and fileio.exists(model.uri)
        }
        # By blessing, not by model: one trained earlier may have come back and been pushed since.
        for blessing in sorted(input_dict["model_blessing"], key=_artifact_id, reverse=True):
            model_id = blessing.get_int_custom_property(
                constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY
            )
            blessed = blessing.get_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY)
            if blessed and model_id in models:
                return {**input_dict, "model": [models[model_id]], "model_blessing": [blessing]}
        return {**input_dict, "model": [], "model_blessing": []}


def _artifact_id(artifact: types.Artifact) -> int:
    return artifact.id
