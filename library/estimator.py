"""Estimators without TensorFlow's: canned models, their checkpoints, and ``model_fn``.

import stagecraft as sc

income = sc.estimator.DNNClassifier([64, 32], {"age": sc.estimator.Numeric()}, label="income")
model, task, settings = income.model, income.task, income.train_settings
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagecraft.common import lazy

if TYPE_CHECKING:
    from stagecraft.contrib.estimator.canned import (
        Canned as Canned,
        DNNClassifier as DNNClassifier,
        DNNLinearCombinedClassifier as DNNLinearCombinedClassifier,
        DNNLinearCombinedRegressor as DNNLinearCombinedRegressor,
        DNNRegressor as DNNRegressor,
        LinearClassifier as LinearClassifier,
        LinearRegressor as LinearRegressor,
        load as load,
    )
    from stagecraft.contrib.estimator.feature_columns import (
        Embedding as Embedding,
        Indicator as Indicator,
    )
    from stagecraft.contrib.estimator.model_fn import (
        Tensor as Tensor,
        from_model_fn as from_model_fn,
    )
    from stagecraft.contrib.estimator.spec import (
        EstimatorSpec as EstimatorSpec,
        ModeKeys as ModeKeys,
    )
    from stagecraft.trainer_module.data.tasks.tables.columns import (
        Bucketized as Bucketized,
        Crossed as Crossed,
        Hashed as Hashed,
        Identity as Identity,
        Listed as Listed,
        Numeric as Numeric,
        Vocabulary as Vocabulary,
    )

__all__, __getattr__, __dir__ = lazy.exports(__name__)
