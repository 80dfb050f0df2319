"""Regular expressions of the settings, applied to the paths of a model's variables.

Phases of a training run: ``train.freeze_after`` freezes more weights from step to step.

An engine traces one graph for each phase. Gradients of frozen weights are no part of the graph: TF
leaves out the ops that would compute them, and the backward pass ends before the layers in front.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import keras

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.settings import TrainSettings

_SHOWN = 5


def matches(patterns: Iterable[str], path: str) -> bool:
    """Whether one of the patterns is found in a path, as :func:`re.search` finds it."""
    return any(re.search(pattern, path) for pattern in patterns)


def multiplier(train: TrainSettings, path: str) -> float:
    """The factor on the learning rate of a variable; the first pattern that matches counts."""
    for pattern, factor in train.learning_rate_multipliers.items():
        if re.search(pattern, path):
            return float(factor)
    return 1.0


def freeze_share(train: TrainSettings, path: str) -> float | None:
    """The share of all steps after which a variable is frozen; the first pattern counts."""
    for pattern, share in train.freeze_after.items():
        if re.search(pattern, path):
            return float(share)
    return None


def apply(train: TrainSettings, model: keras.Model) -> None:
    """Freezes what ``train.frozen`` matches, and checks all patterns against the model.

    If a pattern matches all weights of a layer, the layer is frozen, so that BatchNormalization
    runs in inference mode, as in Keras. Otherwise its matching variables are.

    Raises:
        SettingError: a pattern matches no variable that it could change, or nothing is left to
            train.
    """
    _check("train.frozen", train.frozen, model.trainable_variables)
    _check("train.freeze_after", train.freeze_after, model.trainable_variables)
    _check_not_frozen(train, [variable.path for variable in model.trainable_variables])
    if train.frozen:
        _freeze(train.frozen, model)
        if not model.trainable_variables:
            raise SettingError(
                "train.frozen",
                ", ".join(train.frozen),
                "leaves nothing to train",
                "patterns that match fewer variables",
            )
    trained = model.trainable_variables
    _check_left(train, trained)
    _check("train.learning_rate_multipliers", [*train.learning_rate_multipliers], trained)
    kernels = [variable for variable in trained if is_kernel(variable)]
    _check("train.weight_decay_exclude", train.weight_decay_exclude, kernels)
    optimizer = registries.OPTIMIZERS.get(train.optimizer)
    optimizer.check_weights(train, trained)


def is_kernel(variable: keras.Variable) -> bool:
    """Whether a variable is a kernel: no bias, and no scale of a normalisation.

    KerasHub names the kernels of a mixture of experts, ``[experts, inputs, outputs]``, otherwise.
    """
    return "kernel" in variable.name or is_of_experts(variable)


def is_of_experts(variable: keras.Variable) -> bool:
    """Whether a variable has a kernel of each expert: ``[experts, inputs, outputs]``."""
    named = "kernel" in variable.name or "bias" in variable.name
    return len(variable.shape) == 3 and "expert" in variable.path and not named


def _freeze(patterns: Sequence[str], model: keras.Model) -> None:
    for layer in model._flatten_layers():
        own = [*layer._trainable_variables, *layer._non_trainable_variables]
        matching = [variable for variable in own if matches(patterns, variable.path)]
        if own and len(matching) == len(own) and not layer._layers:
            layer.trainable = False
        for variable in matching:
            variable.trainable = False


def _check_not_frozen(train: TrainSettings, paths: Sequence[str]) -> None:
    """Refuses patterns of ``train.freeze_after`` that match only what is frozen from the start."""
    for pattern in train.freeze_after:
        matching = [path for path in paths if re.search(pattern, path)]
        if all(matches(train.frozen, path) for path in matching):
            raise SettingError(
                "train.freeze_after",
                pattern,
                "matches only weights that train.frozen freezes from the first step, such as "
                f"{matching[0]}",
                "the pattern in one of the two settings",
            )


def _check_left(train: TrainSettings, trained: Sequence[keras.Variable]) -> None:
    """Refuses a ``train.freeze_after`` that freezes everything."""
    if all(freeze_share(train, variable.path) is not None for variable in trained):
        raise SettingError(
            "train.freeze_after",
            ", ".join(train.freeze_after),
            "leaves nothing to train after the last share",
            "patterns that match fewer variables",
        )


def _check(setting: str, patterns: Iterable[str], variables: Sequence[keras.Variable]) -> None:
    paths = [variable.path for variable in variables]
    for pattern in patterns:
        if not any(re.search(pattern, path) for path in paths):
            near = difflib.get_close_matches(pattern, paths, n=_SHOWN, cutoff=0.4)
            what = "kernels" if setting.endswith("decay_exclude") else "trained weights"
            raise SettingError(
                setting,
                pattern,
                f"matches none of the {what}",
                f"a part of a path such as {', '.join(near or paths[:_SHOWN])}",
            )


class Phase(NamedTuple):
    """Steps in a row that train the same weights."""

    end: int | None
    """The number of steps after which the next phase begins; None: the last phase."""
    frozen: frozenset[str]
    """Paths of the weights that ``train.freeze_after`` has frozen."""


ALL = Phase(None, frozenset())
"""The phase that trains all weights."""


def phases(train: TrainSettings, paths: Iterable[str], total_steps: int) -> list[Phase]:
    """The phases of a training run, in order.

    A weight freezes after ``round(share * total_steps)`` steps, but trains in one step at least.

    Args:
        paths: of the weights that the run trains.
        total_steps: steps of the whole run.
    """
    ends: dict[int, set[str]] = {}
    for path in paths:
        share = freeze_share(train, path)
        if share is not None and (end := max(1, round(share * total_steps))) < total_steps:
            ends.setdefault(end, set()).add(path)
    frozen: frozenset[str] = frozenset()
    result = []
    for end in sorted(ends):
        result.append(Phase(end, frozen))
        frozen |= ends[end]
    return [*result, Phase(None, frozen)]


def number_at(phases: Sequence[Phase], step: int) -> int:
    """The place of the phase of the step after ``step`` steps."""
    return next(k for k, phase in enumerate(phases) if phase.end is None or step < phase.end)
