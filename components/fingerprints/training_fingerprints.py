"""Fingerprints of what a training begins with besides its data: code, files and weights.

TFX keys its cache on them, and the Trainer its checkpoints.
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
    """``code_fingerprint``, and ``initial_weights_fingerprint`` where there are such weights.

    A user's model is built for it, to see which files its function reads: they count as code.

    Args:
        code: dotted paths of the component's own code.
        settings: flat ones, or runtime parameters in their place. The code of the strategy, the
            optimizer and so on that they name counts.
        num_classes: what the model's function is called with; None: 10.

    Raises:
        UserError: the model's module, an entry that settings name, or the weights are not found.
    """
    files: list[str] = []
    model, initial_weights = settings["train_model"], settings.get("train_initial_weights")
    code = [*code, *registries.code(settings)]
    if isinstance(model, str) and ":" in model:
        from stagecraft.trainer_module.models import registry  # and Keras

        code = [*code, model]
        classes = features.SAMPLE.num_classes if num_classes is None else num_classes
        code_fingerprint(*code)  # names that are not found are said before anything is built
        files = registry.files_read(model, num_classes=classes)
    found = {"code_fingerprint": code_fingerprint(*code, files=files)}
    if isinstance(initial_weights, str):
        found[WEIGHTS_FINGERPRINT] = weights_fingerprint(initial_weights)
    return found


def weights_fingerprint(initial_weights: str) -> str:
    """16 hexadecimal digits that stand for what ``train.initial_weights`` names.

    Raises:
        UserError: it is not there, or cannot be read.
    """
    found = source.find(initial_weights)
    try:
        files = [str(path) for path in found.files()]
        # How a file is called does not count; how the files of a folder are does.
        return (file_digest(files[0]) if found.path.is_file() else files_digest(files))[:16]
    except OSError as error:
        raise source.InitialWeightsError(
            initial_weights, f"cannot be read: {error.strerror or error}"
        ) from None


def check_weights(exec_properties: dict[str, Any], settings: TrainingSettings) -> str:
    """The fingerprint of the initial weights as they are now; empty where there are none.

    Raises:
        UserError: they are not there, or are not those that the pipeline was made with: what is
            trained would be kept under another's name.
    """
    named = settings.train.initial_weights
    if not named:
        return ""
    now, then = weights_fingerprint(named), exec_properties.get(WEIGHTS_FINGERPRINT)
    if then and then != now:
        raise source.InitialWeightsError(
            named,
            f"holds other weights (fingerprint {now}) than when the pipeline was made ({then}); "
            "run or compile again with these, or put the others back",
        )
    return now
