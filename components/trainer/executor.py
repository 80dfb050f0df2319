"""Hands TFX's generic Trainer what it expects, and notes what came of the training."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

from tfx import types
from tfx.components.trainer import fn_args_utils
from tfx.components.trainer.executor import GenericExecutor
from tfx.proto import trainer_pb2
from tfx.types import artifact_utils
from tfx.utils import json_utils, proto_utils

from stagecraft.components.fingerprints import training_fingerprints, training_properties
from stagecraft.components.metadata import outputs
from stagecraft.components.trainer import launch
from stagecraft.components.trainer.identity import training_key
from stagecraft.components.trainer.on_disk import on_disk
from stagecraft.schemas import features
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.training import record

Artifacts = dict[str, list[types.Artifact]]

_log = logging.getLogger(__name__)


class Executor(GenericExecutor):
    """Runs ``run_fn`` with a ``FnArgs``: typed settings in, figures on the model out."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Trains.

        Args:
            input_dict: ``examples`` with the splits train and val; ``transform_graph``; ``schema``.
            output_dict: ``model``, ``model_run``.
            exec_properties: the flat settings, ``run_fn``, ``checkpoint_root``,
                ``code_fingerprint``, ``initial_weights_fingerprint``.

        Raises:
            UserError: an output folder that holds files of another execution, a setting that
                cannot be (a runtime parameter comes unchecked), a split that is not there, initial
                weights that are not those that the pipeline was made with, or whatever
                ``run_fn`` raises.
        """
        # Elsewhere than under a local runner, an attempt of the same execution may be repeated.
        if self._context is not None and self._context.pipeline_node is not None:
            outputs.keep_and_refuse(output_dict)
        settings = training_properties.read(exec_properties, "Trainer")
        weights = training_fingerprints.check_weights(exec_properties, settings)
        for examples in input_dict["examples"]:
            splits = artifact_utils.decode_split_names(examples.split_names)
            for split in (features.TRAIN, features.VAL):
                if split not in splits:
                    raise UserError(
                        f"{examples.uri}: the examples have no split {split!r} (found: "
                        f"{', '.join(splits)}); the Trainer trains on train, and chooses the best "
                        "checkpoint on val"
                    )
        with (
            on_disk(output_dict),
            _on_cluster(
                settings, input_dict, output_dict, exec_properties["checkpoint_root"]
            ) as handover,
        ):
            super().Do(
                input_dict,
                output_dict,
                {
                    "run_fn": f"{launch.__name__}.{launch.run.__name__}",
                    "train_args": _splits(trainer_pb2.TrainArgs, features.TRAIN),
                    "eval_args": _splits(trainer_pb2.EvalArgs, features.VAL),
                    "custom_config": json_utils.dumps(
                        {
                            "settings": settings.flat(),
                            launch.RUN_FN: exec_properties["run_fn"],
                            launch.HANDOVER: handover,
                        }
                    ),
                    "checkpoint_root": exec_properties["checkpoint_root"],
                    "code_fingerprint": exec_properties["code_fingerprint"],
                    training_properties.WEIGHTS_FINGERPRINT: weights,
                },
            )
            _note_figures(output_dict, exec_properties["code_fingerprint"])

    def _GetFnArgs(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> fn_args_utils.FnArgs:
        fn_args = super()._GetFnArgs(input_dict, output_dict, exec_properties)
        key = training_key(
            {
                "examples": [os.path.dirname(p) for p in fn_args.train_files + fn_args.eval_files],
                "transform_graph": [fn_args.transform_graph_path],
                "schema": [os.path.dirname(fn_args.schema_path)],
            },
            exec_properties["code_fingerprint"],
            fn_args.custom_config["settings"]["train_resume_id"],
            exec_properties[training_properties.WEIGHTS_FINGERPRINT],
        )
        fn_args.working_dir = os.path.join(exec_properties["checkpoint_root"], key)
        return fn_args


@contextlib.contextmanager
def _on_cluster(
    settings: TrainingSettings, inputs: Artifacts, outputs: Artifacts, checkpoint_root: str
) -> Iterator[Any]:
    """Where a job of the cluster does the training, has artifacts where its pods see them.

    Yields:
        What the job is told of it; None where there is no job.
    """
    if settings.parallel.launcher != "kubernetes":
        yield None
        return
    from stagecraft.components.kubernetes.job_folder import exchange  # and the client
    from stagecraft.components.kubernetes.launch import launch

    with exchange.shared(inputs, outputs, launch.settings(), checkpoint_root) as told:
        yield told


def _splits(message: Any, split: str) -> str:
    return str(proto_utils.proto_to_json(message(splits=[split])))


def _note_figures(output_dict: Artifacts, code_fingerprint: str) -> None:
    """Figures for people and the summary, on the artifact so that a cached run has them too."""
    model = artifact_utils.get_single_instance(output_dict["model"])
    model.set_string_custom_property("code_fingerprint", code_fingerprint)
    folder = artifact_utils.get_single_uri(output_dict["model_run"])
    notes = record.find(folder, record.FIGURES)
    if notes is None:
        _log.warning(
            "%s has no %s that can be used: the model is published without its steps, accuracy "
            "and speed. A run_fn of your own writes one with "
            "stagecraft.trainer_module.training.record.write_for",
            folder,
            record.FILE_NAME,
        )
        return
    model.set_int_custom_property("steps", notes["steps"])
    model.set_int_custom_property("resumed_from", notes.get("resumed_from", 0))
    model.set_float_custom_property("images_per_second", float(notes["images_per_second"]))
    if "train" in notes.get("seconds", {}):  # neither evaluating, saving nor exporting
        model.set_float_custom_property("training_seconds", notes["seconds"]["train"])
    if notes["best"]:
        model.set_float_custom_property("val_accuracy", float(notes["best"]["accuracy"]))
    if loaded := notes.get("initial_weights"):
        model.set_int_custom_property("variables_loaded", loaded["variables"])
        model.set_int_custom_property("variables", loaded["total"])
