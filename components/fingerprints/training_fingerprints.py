"""Fingerprints of a training's code, files and initial weights.

They are part of TFX's cache key and of the name of the checkpoint folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint
from stagecraft.components.fingerprints.content_digest import file_digest, files_digest
from stagecraft.components.fingerprints.training_properties import WEIGHTS_FINGERPRINT
from stagecraft.schemas import features
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.initial_weights import source
from stagecraft.trainer_module.settings import TrainingSettings


def fingerprints(
    code: list[str], settings: Mapping[str, Any], num_classes: int | None
) -> dict[str, str]:
    """``code_fingerprint``, and ``initial_weights_fingerprint`` if there are such weights.

    Builds a user's model to see which files its function reads. These count as code.

    Args:
        settings: flat ones, or runtime parameters in their place. The code of the strategy, the
            optimizer and so on that they name counts.
        num_classes: argument of the model's function; None: 10.

    Raises:
        UserError: the model's module, an entry that settings name, or the weights do not exist.
    """
    files: list[str] = []
    model, initial_weights = settings["train_model"], settings.get("train_initial_weights")
    code = [*code, *registries.code(settings)]
    if isinstance(model, str) and ":" in model:
        from stagecraft.trainer_module.models import registry  # and Keras

        code = [*code, model]
        classes = features.SAMPLE.num_classes if num_classes is None else num_classes
        code_fingerprint(*code)  # refuses unknown names before building the model
        files = registry.files_read(model, num_classes=classes)
    result = {"code_fingerprint": code_fingerprint(*code, files=files)}
    if isinstance(initial_weights, str):
        result[WEIGHTS_FINGERPRINT] = weights_fingerprint(initial_weights)
    return result


def weights_fingerprint(initial_weights: str) -> str:
    """16 hexadecimal digits that identify the content of ``train.initial_weights``.

    Raises:
        UserError: the weights do not exist or cannot be read.
    """
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
