"""The Pusher component."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.components.pusher import component
from tfx.dsl.components.base import executor_spec
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts, standard_component_specs
from tfx.utils import json_utils

from stagecraft.common.errors import UserError
from stagecraft.components.interface import channels
from stagecraft.components.pusher import executor
from stagecraft.schemas.features import EVAL


class PusherSpec(standard_component_specs.PusherSpec):
    """TFX's, with examples."""

    INPUTS = {
        **standard_component_specs.PusherSpec.INPUTS,
        **channels(optional=True, **{executor.EXAMPLES: standard_artifacts.Examples}),
    }


class Pusher(component.Pusher):
    """Pushes a blessed model as the highest version of a folder, whole or not at all.

    It has the inputs, outputs and arguments of ``tfx.components.Pusher``, and some more. A version
    is the time in seconds, or the highest version plus one: a clock that was set back does not hide
    a new model. The Pusher compares the model with the digests that the Trainer recorded, copies it
    to a temporary folder, reads the copy back, and renames the folder. An object store cannot
    rename: there, the Pusher writes ``saved_model.pb`` last, and removes a failed push. The file
    ``.manifest.json`` in a version has the size and the SHA-256 of each pushed file.

    ``custom_config={"pushed_by": {"name": "my-pipeline"}}`` names the pipeline. The Pusher then
    writes ``pushed_by.json`` into each version, and refuses a folder whose newest version another
    pipeline pushed. A version without the file passes.

    Its executor raises a UserError if the SavedModel is missing or cannot be written, a
    DamagedArtifactError if it is not the one that the Trainer wrote, and a DamagedCopyError if the
    copy differs from it.
    """

    SPEC_CLASS = PusherSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        model: types.BaseChannel | None = None,
        model_blessing: types.BaseChannel | None = None,
        infra_blessing: types.BaseChannel | None = None,
        push_destination: pusher_pb2.PushDestination | RuntimeParameter | None = None,
        custom_config: dict[str, Any] | None = None,
        custom_executor_spec: executor_spec.ExecutorSpec | None = None,
        *,
        keep: int | None = None,
        warmup: int = 0,
        examples: types.BaseChannel | None = None,
        split: str = EVAL,
    ):
        """Makes the component; the arguments before ``keep`` are those of TFX.

        Args:
            model: the SavedModel; or ``infra_blessing`` with a model.
            model_blessing: of the Evaluator.
            infra_blessing: of the InfraValidator.
            push_destination: ``filesystem.base_directory``.
            custom_config: ``pushed_by``, see above.
            custom_executor_spec: in place of this component's executor.
            keep: number of versions of this pipeline that stay in the folder; None: all. The served
                model, the one that it was compared with, and versions that a user rolled back to
                stay, too.
            warmup: number of examples for ``assets.extra/tf_serving_warmup_requests``, with a
                request for each signature that clients call. TensorFlow Serving sends these
                requests to a version before it serves it. Only the pushed version has the file.
            examples: for ``warmup``.
            split: of ``examples``.

        Raises:
            UserError: there is no model, or no examples for ``warmup``.
        """
        if model is None and infra_blessing is None:
            raise UserError("Pusher: set model, or infra_blessing with a model.", setting="model")
        if warmup and examples is None:
            raise UserError("Pusher: warmup needs examples.", setting="examples")
        config = dict(custom_config or {})
        config |= {executor.KEEP: keep} if keep else {}
        config |= {executor.WARMUP: {"examples": warmup, "split": split}} if warmup else {}
        spec = PusherSpec(
            model=model,
            model_blessing=model_blessing,
            infra_blessing=infra_blessing,
            examples=examples if warmup else None,
            push_destination=push_destination,
            custom_config=json_utils.dumps(config or None),
            pushed_model=types.Channel(type=standard_artifacts.PushedModel),
        )
        # TFX's Pusher makes a spec of its own.
        BaseComponent.__init__(self, spec=spec, custom_executor_spec=custom_executor_spec)
