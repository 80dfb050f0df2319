"""The settings of a training as typed execution properties, and fingerprints of its code and files.

Trainer and ParityGate share these properties and inputs. The fingerprints are part of TFX's cache
key and of the name of the checkpoint folder.
"""

from __future__ import annotations

import types as python_types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from tfx.types import component_spec, standard_artifacts

from stagecraft.common.errors import UserError, setting_error
from stagecraft.common.settings import is_section, mapping
from stagecraft.components.fingerprints.code_fingerprint import (
    code_fingerprint,
    file_digest,
    files_digest,
)
from stagecraft.components.interface import channels
from stagecraft.trainer_module import hub, registries
from stagecraft.trainer_module.data.tasks.task import ModelArguments
from stagecraft.trainer_module.models.initial_weights import source
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.settings.train import names_a_run

INPUTS = channels(
    examples=standard_artifacts.Examples,
    transform_graph=standard_artifacts.TransformGraph,
    schema=standard_artifacts.Schema,
)

WEIGHTS_FINGERPRINT = "initial_weights_fingerprint"
"""Fingerprint of ``train.initial_weights`` when the pipeline was made; absent if unknown."""


def parameters() -> dict[str, component_spec.ExecutionParameter]:
    """Fingerprints, and all fields of the settings, such as ``train_batch_size: int``."""
    result = {
        "code_fingerprint": component_spec.ExecutionParameter(type=str),
        WEIGHTS_FINGERPRINT: component_spec.ExecutionParameter(type=str, optional=True),
    }
    for section, outer in TrainingSettings.model_fields.items():
        for name, field in outer.annotation.model_fields.items():  # type: ignore[union-attr]
            primitive, optional = _primitive(field.annotation)
            result[f"{section}_{name}"] = component_spec.ExecutionParameter(
                type=primitive, optional=optional or field.default in ((), {})
            )
    return result


def read(exec_properties: dict[str, Any], component: str) -> TrainingSettings:
    """The settings among a component's execution properties."""
    sections = tuple(f"{section}_" for section in TrainingSettings.model_fields)
    flat = {key: value for key, value in exec_properties.items() if key.startswith(sections)}
    # A runtime parameter always has a value: 0 means None. Steps override epochs.
    if flat.get("train_steps"):
        flat.pop("train_epochs", None)
    flat = {
        key: value
        for key, value in flat.items()
        if value or key not in ("train_steps", "train_epochs")
    }
    try:
        return TrainingSettings.from_flat(flat)
    except ValidationError as error:
        problems = [
            str(setting_error(problem) or f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}")
            for problem in error.errors()
        ]
        setting = ".".join(map(str, error.errors()[0]["loc"]))
        raise UserError(f"{component}: {'; '.join(problems)}", setting=setting) from None


def _primitive(annotation: Any) -> tuple[type, bool]:
    """The type that ML Metadata stores a field as, and whether the field may be None."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return type(arguments[0]), False
    if origin in (typing.Union, python_types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        return _primitive(inner[0])[0], len(inner) < len(arguments)
    if origin in (dict, tuple) or is_section(annotation):
        return str, False  # JSON
    return (int if annotation is bool else annotation), False


def fingerprints(
    code: list[str], settings: Mapping[str, Any], arguments: ModelArguments | None
) -> dict[str, str]:
    """``code_fingerprint``, and ``initial_weights_fingerprint`` if there are such weights.

    Builds a user's model to see which files its function reads. These count as code.

    Args:
        settings: flat ones, or runtime parameters in their place. The code of the strategy, the
            optimizer and so on that they name counts.
        arguments: of the model's function; None: those of the task's sample.
    """
    files: list[str] = []
    model, initial_weights = settings["train_model"], settings.get("train_initial_weights")
    code = [*code, *registries.code(settings)]
    if isinstance(model, str) and ":" in model:
        from stagecraft.trainer_module.models import build_model  # and Keras

        if hub.class_name(model):
            hub.check_class(model)
        else:
            code = [*code, model]
        task = registries.task(settings["task_name"], settings.get("task_args"))
        arguments = task.sample_arguments if arguments is None else arguments
        code_fingerprint(*code)  # refuses unknown names before building the model
        given = settings.get("train_model_args")
        given = mapping("train.model_args", given) if isinstance(given, (str, dict)) else {}
        if arguments is not None:
            files = build_model.files_read(model, arguments, task, given)
    result = {"code_fingerprint": code_fingerprint(*code, files=files)}
    if isinstance(initial_weights, str) and not names_a_run(initial_weights):
        result[WEIGHTS_FINGERPRINT] = weights_fingerprint(initial_weights)
    return result


def weights_fingerprint(initial_weights: str) -> str:
    """16 hexadecimal digits that identify the content of ``train.initial_weights``."""
    found = source.find(initial_weights)
    try:
        files = [str(path) for path in found.files()]
        # The name of a single file does not count; names in a folder do.
        return (file_digest(files[0]) if found.path.is_file() else files_digest(files))[:16]
    except OSError as error:
        raise source.InitialWeightsError(
            initial_weights, f"cannot be read: {error.strerror or error}"
        ) from None


def check_weights(exec_properties: dict[str, Any], settings: TrainingSettings) -> str:
    """The current fingerprint of the initial weights; empty without initial weights.

    Raises:
        UserError: the weights do not exist, or changed since the pipeline was made.
    """
    path = settings.train.initial_weights
    if not path:
        return ""
    now, then = weights_fingerprint(path), exec_properties.get(WEIGHTS_FINGERPRINT)
    if then and then != now:
        raise source.InitialWeightsError(
            path,
            f"has other weights (fingerprint {now}) than when the pipeline was created ({then}); "
            "run or compile the pipeline again, or restore the old weights",
        )
    return now
