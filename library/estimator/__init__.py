"""What Estimators become: canned models, their checkpoints, and ``model_fn``.

import stagecraft as sc

income = sc.estimator.DNNClassifier([64, 32], {"age": sc.estimator.Numeric()}, label="income")
model, task, settings = income.model, income.task, income.train_settings
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

__all__ = [
    "Bucketized",
    "Canned",
    "Crossed",
    "DNNClassifier",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "Embedding",
    "EstimatorSpec",
    "Hashed",
    "Identity",
    "Indicator",
    "LinearClassifier",
    "LinearRegressor",
    "Listed",
    "ModeKeys",
    "Numeric",
    "Tensor",
    "Vocabulary",
    "from_model_fn",
    "load",
]

if TYPE_CHECKING:
    from stagecraft.estimator.canned import (
        Canned,
        DNNClassifier,
        DNNLinearCombinedClassifier,
        DNNLinearCombinedRegressor,
        DNNRegressor,
        LinearClassifier,
        LinearRegressor,
    )
    from stagecraft.estimator.checkpoint import load
    from stagecraft.estimator.feature_columns import Embedding, Indicator
    from stagecraft.estimator.model_fn import Tensor, from_model_fn
    from stagecraft.estimator.spec import EstimatorSpec, ModeKeys
    from stagecraft.trainer_module.data.tasks.tables.columns import (
        Bucketized,
        Crossed,
        Hashed,
        Identity,
        Listed,
        Numeric,
        Vocabulary,
    )

_COLUMNS = "stagecraft.trainer_module.data.tasks.tables.columns"
_CANNED = "stagecraft.estimator.canned"

_PLACES = {
    **dict.fromkeys(("Canned", "LinearClassifier", "LinearRegressor"), _CANNED),
    **dict.fromkeys(("DNNClassifier", "DNNRegressor"), _CANNED),
    **dict.fromkeys(("DNNLinearCombinedClassifier", "DNNLinearCombinedRegressor"), _CANNED),
    **dict.fromkeys(("EstimatorSpec", "ModeKeys"), "stagecraft.estimator.spec"),
    **dict.fromkeys(("Tensor", "from_model_fn"), "stagecraft.estimator.model_fn"),
    "load": "stagecraft.estimator.checkpoint",
    **dict.fromkeys(("Embedding", "Indicator"), "stagecraft.estimator.feature_columns"),
    **dict.fromkeys(("Bucketized", "Crossed", "Hashed", "Identity"), _COLUMNS),
    **dict.fromkeys(("Listed", "Numeric", "Vocabulary"), _COLUMNS),
}
"""Public name -> module."""


def __getattr__(name: str) -> Any:
    """Imports a public name when it is used for the first time (PEP 562)."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = pkgutil.resolve_name(f"{_PLACES[name]}:{name}")
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
