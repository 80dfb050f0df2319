"""From ``train.model`` to one Keras model: the same call gives the same model.

Names, variable paths and initial weights are equal each time, in any process and
under any strategy, so that checkpoints and exports are keyed by path.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

import keras

from stagecraft.schemas import features
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.models import registry
from stagecraft.trainer_module.settings import TrainSettings

_log = logging.getLogger(__name__)


def assemble(train: TrainSettings, num_classes: int) -> keras.Model:
    """Builds ``train.model`` in the current strategy scope; seeds everything with ``train.seed``.

    Returns:
        A built model: images float32 ``[batch, 32, 32, 3]`` -> logits ``[batch, num_classes]``.

    Raises:
        UserError: no such model, one that does not give logits, stages that do not fit
            together, or two variables of one path.
    """
    # Keras numbers the layers of a process ("conv2d_7"); counting begins anew here.
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(train.seed)
    built = registry.build(train.model, input_shape=features.IMAGE_SHAPE, num_classes=num_classes)
    model = built if isinstance(built, keras.Model) else chain(built, train.model)
    counts = Counter(variable.path for variable in model.variables)
    twice = [path for path, count in counts.items() if count > 1]
    if twice:
        raise UserError(
            f"train.model: {train.model}: {counts[twice[0]]} variables have the path {twice[0]!r}, "
            "and checkpoints go by path; give their layers different names"
        )
    return model


def chain(stages: Sequence[keras.Model], name: str) -> keras.Model:
    """One model out of those that are to be the stages, each fed with what the one before gives.

    Raises:
        UserError: a stage does not take what the one before it gives.
    """
    _log.info("%s is a list of %d stages; they are chained into one model", name, len(stages))
    images = hidden = keras.Input(features.IMAGE_SHAPE)
    for index, stage in enumerate(stages):
        try:
            hidden = stage(hidden)
        except Exception as error:  # whatever a user's layer raises about its input
            raise UserError(
                f"train.model: {name}: stage {index} does not take the output of shape "
                f"{tuple(hidden.shape)} that it is given: {error}"
            ) from error
    return keras.Model(images, hidden)
