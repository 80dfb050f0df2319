"""Runs TFX's generic Trainer, and records the metrics of the training on the model.

TFX calls :func:`run`, which trains in this process, or starts processes: here or in a cluster.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfx import types
from tfx.components.trainer import fn_args_utils
from tfx.components.trainer.executor import GenericExecutor
from tfx.proto import trainer_pb2
from tfx.types import artifact_utils
from tfx.utils import io_utils, json_utils, path_utils, proto_utils

from stagecraft.common.errors import UserError, said
from stagecraft.components import resolvers
from stagecraft.components.evaluator.evaluation import ACCURACY, IMAGES, MONITOR, NOUN
from stagecraft.components.example_gen import spans
from stagecraft.components.fingerprints import training_properties
from stagecraft.components.fingerprints.code_fingerprint import folder_digest
from stagecraft.components.interface import Artifacts
from stagecraft.components.metadata import manifest, outputs, run_metadata
from stagecraft.components.object_store.location import permanent_uri
from stagecraft.schemas import features
from stagecraft.trainer_module.data.input_data import WEIGHTS
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.models.initial_weights.loading import note_weights
from stagecraft.trainer_module.models.initial_weights.source import TRAINING_STATE
from stagecraft.trainer_module.processes import launcher
from stagecraft.trainer_module.processes.training_task import TrainingTask
from stagecraft.trainer_module.settings import TrainingSettings, hyperparameters
from stagecraft.trainer_module.training import record

_log = logging.getLogger(__name__)

HYPERPARAMETERS = "hyperparameters"
"""The optional input: what TFX's Tuner found."""

BASE_MODEL = "base_model"
"""The optional input: the model that the training continues; TFX's name."""

_RUN_FN = "run_fn"  # in ``custom_config``: dotted path of the function that trains
_JOB_FOLDER = "job_folder"  # in ``custom_config``: the folder of a cluster job; None without a job

DEFAULT_SPLITS = (features.TRAIN, features.VAL)
"""Splits to train on, and to select the best checkpoint on."""


class Executor(GenericExecutor):
    """Runs ``run_fn`` with a ``FnArgs`` made of typed settings."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """See the component."""
        # In a container, an attempt of the same execution may be repeated.
        if self._context is not None and self._context.pipeline_node is not None:
            outputs.keep_and_refuse(output_dict)
        settings = training_properties.read(
            hyperparameters.override(exec_properties, _found(input_dict)), "Trainer"
        )
        train, val = json.loads(exec_properties.get("splits") or json.dumps(DEFAULT_SPLITS))
        for examples in input_dict["examples"]:
            splits = artifact_utils.decode_split_names(examples.split_names)
            for split in (train, val):
                if split not in splits:
                    raise UserError(
                        f"{examples.uri}: the examples have no split {split!r}, only "
                        f"{', '.join(splits)}; the Trainer trains on {train} and selects the best "
                        f"checkpoint on {val}",
                        file=examples.uri,
                        record=split,
                    )
        models = input_dict.get(BASE_MODEL, [])
        start = _start(settings, models)
        warm = settings.train.warm_start
        keeps_state = bool(warm and warm.optimizer_state)
        uris = [examples.uri for examples in input_dict["examples"]]
        given = [run_metadata.of_artifact(each.mlmd_artifact) for each in input_dict["examples"]]
        weights = spans.weights(given, settings.train.window_weights)
        with (
            on_disk(output_dict),
            _on_cluster(
                settings, input_dict, output_dict, exec_properties["checkpoint_root"]
            ) as job_folder,
        ):
            manifest.check(input_dict)  # or their copies, which the pods read
            settings = _warm(settings, models)
            fingerprint = training_properties.check_weights(exec_properties, settings)
            super().Do(
                input_dict,
                output_dict,
                {
                    "run_fn": f"{run.__module__}.{run.__name__}",
                    "train_args": _splits(trainer_pb2.TrainArgs, train),
                    "eval_args": _splits(trainer_pb2.EvalArgs, val),
                    "custom_config": json_utils.dumps(
                        {
                            "settings": settings.flat(),
                            _RUN_FN: exec_properties["run_fn"],
                            _JOB_FOLDER: job_folder,
                            **({WEIGHTS: weights} if weights else {}),
                            **({TRAINING_STATE: True} if keeps_state else {}),
                            **({record.START: start._asdict()} if start else {}),
                        }
                    ),
                    "checkpoint_root": exec_properties["checkpoint_root"],
                    "code_fingerprint": exec_properties["code_fingerprint"],
                    training_properties.WEIGHTS_FINGERPRINT: fingerprint,
                },
            )
            if read := spans.told_of(given):
                record.add(artifact_utils.get_single_uri(output_dict["model_run"]), {"spans": read})
            code = exec_properties["code_fingerprint"]
            _record_metrics(output_dict, code, settings.task.found)
            examples = resolvers.examples_identity(uris)
            for model in output_dict["model"]:
                model.set_string_custom_property(resolvers.EXAMPLES_PROPERTY, examples)
            for artifact in output_dict["model"]:  # before anything copies it
                manifest.add(artifact.mlmd_artifact, artifact.type_name)

    def _GetFnArgs(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> fn_args_utils.FnArgs:
        fn_args = super()._GetFnArgs(input_dict, output_dict, exec_properties)
        folders = {
            "examples": [os.path.dirname(p) for p in fn_args.train_files + fn_args.eval_files],
            "transform_graph": [fn_args.transform_graph_path],
            "schema": [os.path.dirname(fn_args.schema_path)],
        }
        if tuned := input_dict.get(HYPERPARAMETERS):
            folders[HYPERPARAMETERS] = [artifact.uri for artifact in tuned]
        key = training_key(
            folders,
            exec_properties["code_fingerprint"],
            fn_args.custom_config["settings"]["train_resume_id"],
            exec_properties[training_properties.WEIGHTS_FINGERPRINT],
        )
        fn_args.working_dir = os.path.join(exec_properties["checkpoint_root"], key)
        return fn_args


def _found(input_dict: Artifacts) -> dict[str, Any] | None:
    """Reads the values that TFX's Tuner found; None: there is no Tuner."""
    if not input_dict.get(HYPERPARAMETERS):
        return None
    folder = artifact_utils.get_single_uri(input_dict[HYPERPARAMETERS])
    file = io_utils.get_only_uri_in_dir(folder)
    try:
        found: dict[str, Any] = json.loads(io_utils.read_string_file(file))
        return {"values": found["values"]}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file}: is not the hyperparameters of a Tuner: {said(error)}", file=file
        ) from error


def _start(settings: TrainingSettings, models: Sequence[types.Artifact]) -> record.Start | None:
    """The record of the model that a training continues, which people also see; None: none."""
    if settings.train.base_model is None:
        return None
    uri = permanent_uri(models[0].uri) if models else None
    start = record.Start(settings.train.base_model, uri)
    note_weights(start.note())
    return start


def _warm(settings: TrainingSettings, models: Sequence[types.Artifact]) -> TrainingSettings:
    """The settings with the files of the model that a training continues."""
    train = settings.train
    weights = None
    if train.base_model and models:
        uri = models[0].uri
        weights = path_utils.serving_model_path(uri)
        if train.warm_start and train.warm_start.optimizer_state:
            steps = sorted(pathlib.Path(uri, TRAINING_STATE).glob("*/state.index"))
            weights = str(steps[0].parent) if steps else weights
    return settings.model_copy(update={"train": train.warm(weights)})


@contextlib.contextmanager
def _on_cluster(
    settings: TrainingSettings, inputs: Artifacts, outputs: Artifacts, checkpoint_root: str
) -> Iterator[Any]:
    """Puts artifacts where pods of a cluster job can read them; yields the job folder, or None."""
    if settings.parallel.launcher != "kubernetes":
        yield None
        return
    from stagecraft.components.kubernetes.job_folder import exchange  # and the client
    from stagecraft.components.kubernetes.launch import launch

    with exchange.shared(inputs, outputs, launch.settings(), checkpoint_root) as shared:
        yield shared


def run(fn_args: Any) -> None:
    """Stands in for the ``run_fn`` that ``custom_config`` names; TFX's Trainer calls it."""
    config = fn_args.custom_config
    task, job_folder = TrainingTask(config.pop(_RUN_FN), fn_args), config.pop(_JOB_FOLDER, None)
    parallel = TrainingSettings.from_flat(task.settings).parallel
    if parallel.launcher == "kubernetes":
        from stagecraft.components.kubernetes.launch import launch

        launch.run(task, parallel, job_folder)
    elif launcher.is_local(parallel):
        launcher.run_local(task, parallel)
    else:
        task.function()(fn_args)


def _splits(message: Any, split: str) -> str:
    return str(proto_utils.proto_to_json(message(splits=[split])))


def _record_metrics(output_dict: Artifacts, code_fingerprint: str, task: Task) -> None:
    """Records metrics on the model artifact, so that a cached run has them, too."""
    model = artifact_utils.get_single_instance(output_dict["model"])
    model.set_string_custom_property("code_fingerprint", code_fingerprint)
    folder = artifact_utils.get_single_uri(output_dict["model_run"])
    notes = record.find(folder, record.FIGURES)
    if notes is None:
        _log.warning(
            "%s has no usable %s, so the published model lacks steps, accuracy and speed. A custom "
            "run_fn can write this file with "
            "stagecraft.components.record.write_for",
            folder,
            record.FILE_NAME,
        )
        return
    model.set_int_custom_property("steps", notes["steps"])
    model.set_int_custom_property("resumed_from", notes.get("resumed_from", 0))
    model.set_float_custom_property("images_per_second", float(notes["images_per_second"]))
    if "train" in notes.get("seconds", {}):  # without evaluation, saving and export
        model.set_float_custom_property("training_seconds", notes["seconds"]["train"])
    if notes["best"]:
        chosen_by = notes.get("chosen_by", task.monitor)
        for name, value in notes["best"].items():
            is_shown = name in (*record.metrics_of(notes["best"]), task.monitor, chosen_by)
            if is_shown and not math.isnan(value):  # SQLite has no NaN
                model.set_float_custom_property(f"val_{name}", float(value))
    for name, word, default in (
        (MONITOR, task.monitor, ACCURACY),
        (NOUN, task.noun, IMAGES),
    ):
        if word != default:
            model.set_string_custom_property(name, word)
    if loaded := notes.get("initial_weights"):
        model.set_int_custom_property("variables_loaded", loaded["variables"])
        model.set_int_custom_property("variables", loaded["total"])


def training_key(
    folders: Mapping[str, Iterable[str]], code: str, resume_id: str, weights: str = ""
) -> str:
    """24 hexadecimal digits that identify data, code, initial weights and ``resume_id``.

    They name the checkpoint folder. A retried Trainer must find the checkpoints of its earlier
    attempt. After a change of data or code, it must not find them. After a change of settings it
    finds them; the training then compares the settings and reports differences. Artifacts are
    identified by content, because URIs start again with a new metadata store.

    Args:
        folders: role -> folders of the input (splits, transform graph, schema).
        resume_id: ``train.resume_id``, which distinguishes trainings of the same data and code.
    """
    identity = {
        "data": {
            name: [folder_digest(folder) for folder in paths] for name, paths in folders.items()
        },
        "code": code,
        "resume_id": resume_id,
        **({"weights": weights} if weights else {}),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]


@contextlib.contextmanager
def on_disk(outputs: dict[str, list[types.Artifact]]) -> Iterator[None]:
    """Gives each remote artifact a local folder, and copies the folder to the address on success.

    On Vertex AI, TFX's entrypoint passes outputs at remote addresses. A training renames, syncs and
    appends to its files, and an object store supports none of these.
    """
    remote = [
        artifact
        for artifacts in outputs.values()
        for artifact in artifacts
        if "://" in artifact.uri
    ]
    addresses = [artifact.uri for artifact in remote]
    with tempfile.TemporaryDirectory() as scratch:
        folders = [os.path.join(scratch, str(index)) for index in range(len(remote))]
        try:
            for folder, artifact in zip(folders, remote, strict=True):
                os.mkdir(folder)
                artifact.uri = folder
            yield
        finally:
            for address, artifact in zip(addresses, remote, strict=True):
                artifact.uri = address
        for folder, address in zip(folders, addresses, strict=True):
            io_utils.copy_dir(folder, address)
