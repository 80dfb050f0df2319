"""A number to predict from a table; without arguments, from the sample that this file makes."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import Self

from stagecraft.common.errors import SettingError
from stagecraft.schemas import features as names
from stagecraft.trainer_module.data.tasks import metric
from stagecraft.trainer_module.data.tasks.constant import Mean
from stagecraft.trainer_module.data.tasks.tables.column import Column, moments
from stagecraft.trainer_module.data.tasks.tables.columns import Numeric, Vocabulary
from stagecraft.trainer_module.data.tasks.tables.table import Table

if TYPE_CHECKING:
    import numpy as np

    from stagecraft.trainer_module.data.batch import Nest
    from stagecraft.trainer_module.settings import TrainSettings


SCALES = ("z_score", "none")
"""Values of ``task.args.label_scale``."""

EXAMPLES = 6_000
_ORES = {"iron": 3.0, "copper": -2.0, "tin": 0.5}
"""Of the sample."""


class Scaling(NamedTuple):
    """How Transform scaled the label: ``(label - mean) / deviation``."""

    mean: float = 0.0
    deviation: float = 1.0


class Regression(Table):
    """Squared error of a float label.

    With ``label_scale: z_score``, the targets and the model's outputs are in standard deviations of
    the train split, from its mean; so is the loss. Metrics and the exported model's predictions are
    in the label's own unit.
    """

    name = "regression"
    description = "a number from columns of a table"
    monitor = "mse"
    smooths = False
    report_sections = ("residuals", "features")

    def __init__(
        self,
        features: Mapping[str, Column | str | Mapping[str, Any]],
        label: str,
        weight: str | None = None,
        label_scale: str = "z_score",
    ):
        """Declares the columns; see :class:`Table`.

        Args:
            label_scale: ``z_score``: Transform scales the label to mean 0 and variance 1 over the
                train split; ``none``: the model learns the label itself.

        Raises:
            SettingError: an argument is invalid.
        """
        super().__init__(features, label, weight)
        if label_scale not in SCALES:
            use = " or ".join(SCALES)
            raise SettingError("task.args.label_scale", label_scale, "is unknown", use)
        self.label_scale = label_scale
        self._scaling = Scaling()
        if self._scaling_feature in (*self._inputs, *self._sources, weight):
            raise SettingError(
                "task.args.label",
                label,
                f"is scaled with the help of a feature {self._scaling_feature}, a name that is "
                "taken",
                "another name for that feature, or task.args.label_scale: none",
            )

    @property
    def _scaling_feature(self) -> str:
        """The transformed feature that holds the :class:`Scaling`: float32 ``[batch, 3]``.

        Mean, deviation, and what float32 rounds off the mean.
        """
        return f"{self.label}_scaling"

    @property
    def scales_targets(self) -> bool:  # type: ignore[override]
        """Whether ``label_scale`` is on."""
        return self.label_scale != "none"

    def to_label(self, raw: Any) -> Any:
        """The label ``[batch]`` in its own unit: float64 if it will be scaled, else float32."""
        import tensorflow as tf

        raw = tf.reshape(raw, [-1])
        return tf.cast(raw, tf.float64) if self.scales_targets else super().to_label(raw)

    def preprocess(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Preprocesses as the base does; with ``label_scale``, adds a z-score and its scaling."""
        import tensorflow as tf

        result = super().preprocess(inputs)
        if self.scales_targets:
            label = tf.cast(result[self.label], tf.float64)
            mean, deviation = moments(label)
            rest = mean - tf.cast(tf.cast(mean, tf.float32), tf.float64)
            scaling = tf.cast(tf.stack([mean, deviation, rest]), tf.float32)
            result[self.label] = tf.cast((label - mean) / deviation, tf.float32)
            result[self._scaling_feature] = tf.tile(scaling[tf.newaxis], [tf.size(label), 1])
        return result

    def fitted(
        self, features: Mapping[str, Any], vocabulary: Callable[[str], Sequence[bytes]]
    ) -> Self:
        """A copy that knows how Transform scaled the label: not, without such a feature."""
        if self._scaling_feature not in features:
            return self
        found = copy.copy(self)
        mean, deviation, *rest = map(float, features[self._scaling_feature][0])
        found._scaling = Scaling(mean + sum(rest), deviation)
        return found

    _wide = "float64"  # dtype of predictions in their own unit

    def in_float32(self) -> Self:
        """A copy that rounds predictions to float32 already where it scales them."""
        found = copy.copy(self)
        found._wide = "float32"
        return found

    def own_unit(self, outputs: Nest, targets: Nest) -> tuple[Nest, Nest]:
        """Predictions and labels, float64 where they were scaled."""
        import tensorflow as tf

        mean, deviation = self._scaling
        if self._scaling == Scaling():
            return outputs, targets

        def unscaled(values: Any) -> Any:
            return None if values is None else mean + deviation * tf.cast(values, self._wide)

        return unscaled(outputs), unscaled(targets)

    def constant(self) -> Mean:
        """The mean of the label."""
        return Mean("the mean of the label")

    def draw_labels(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """Normal numbers."""
        return draw.standard_normal(count)

    def outputs(self, outputs: Nest, schema_path: str) -> Mapping[str, Any]:
        """``prediction``: float32 ``[batch]``.

        It is float64 for labels that float32 hardly tells apart, such as seconds since 1970.
        """
        import numpy as np
        import tensorflow as tf

        mean, deviation = self._scaling
        is_coarse = np.spacing(np.float32(abs(mean))) > deviation / _STEPS
        return {"prediction": tf.cast(outputs[:, 0], self._wide if is_coarse else tf.float32)}

    def losses(self, outputs: Nest, targets: Nest, dtype: Any, train: TrainSettings | None) -> Any:
        """``(prediction - label) ** 2``, both as :attr:`label_scale` makes them."""
        return _error(outputs, targets, dtype) ** 2

    def metrics(self) -> Sequence[metric.Metric]:
        """Mean squared and mean absolute error, and R²."""
        import tensorflow as tf

        return (
            metric.Mean("mse", lambda *pair: _error(*pair) ** 2, higher_is_better=False),
            metric.Mean("mae", lambda *pair: tf.abs(_error(*pair)), higher_is_better=False),
            R2(self._scaling.mean),
        )

    def sampled(self, outputs: Nest, targets: Nest) -> Mapping[str, Any]:
        """``predicted`` and ``actual``."""
        return {"predicted": outputs[:, 0], "actual": targets}


class R2(metric.Metric):
    """The coefficient of determination: the share of the label's variance that is explained."""

    name = "r2"
    size = 4
    cancels = True

    def __init__(self, origin: float = 0.0):
        """``origin``: near the mean of the labels, whose squares then stay small."""
        self._origin = origin

    def terms(self, outputs: Any, targets: Any, dtype: Any) -> Any:
        """``[error ** 2, y, y ** 2, 1]`` of each example; ``y``: label minus ``origin``."""
        import tensorflow as tf

        squares = tf.cast(_error(outputs, targets, dtype) ** 2, dtype)
        labels = tf.cast(targets, dtype) - tf.cast(self._origin, dtype)
        return tf.stack([squares, labels, labels**2, tf.ones_like(labels)], axis=1)

    def result(self, sums: np.ndarray) -> float:
        """``1 - residual / total``; undefined where the labels do not vary."""
        residual, labels, squares, weight = sums
        total = squares - labels**2 / weight if weight else 0.0
        return float(1 - residual / total) if total > _ROUNDING * squares else math.nan

    def against_constant(self, sums: np.ndarray, count: float) -> tuple[float, float] | None:
        """0, that of the best constant for these labels; refuses a model that is no better."""
        return 0.0, float(self.result(sums) > 0)


_STEPS = 64
"""Of float32 in a deviation: with fewer, rounding costs more than 0.5 % of the deviation."""

_ROUNDING = 1e-12
"""More than the relative error of a sum in float64."""


def _error(outputs: Any, targets: Any, dtype: Any = "float32") -> Any:
    """``[batch]``, at least as precise as ``dtype``."""
    import tensorflow as tf

    predictions = outputs[:, 0]
    if predictions.dtype != tf.float64:
        predictions = tf.cast(predictions, dtype)
    return predictions - tf.cast(targets, predictions.dtype)


class SampleRegression(Regression):
    """Without arguments, predicts ``y`` of the sample."""

    def __init__(
        self,
        features: Mapping[str, Column | str | Mapping[str, Any]] | None = None,
        label: str = "y",
        weight: str | None = None,
        label_scale: str = "z_score",
    ):
        """See :class:`Regression`."""
        self._is_sample = features is None
        if features is None:
            self.schema_file = names.schema_file("regression")
            features = {
                **{f"x{number}": Numeric() for number in range(1, 5)},
                "ore": Vocabulary(size=10),
            }
        super().__init__(features, label, weight, label_scale)

    def sample(self) -> Iterable[Mapping[str, Any]] | None:
        """``y``: a plane, a product and noise of the deviation 0.5; a tenth of ``x4`` is missing.

        The variance that the columns explain is 0.98 of that of ``y``; a plane explains 0.91.
        """
        return _rows() if self._is_sample else None


def _rows() -> Iterable[Mapping[str, Any]]:
    draw = random.Random(0)
    for number in range(EXAMPLES):
        x1, x2, x3, x4 = (draw.gauss(0, 1) for _ in range(4))
        ore = draw.choice(list(_ORES))
        y = 10 + 2 * x1 - 3 * x2 + x3 + 0.5 * x4 + 1.2 * x1 * x3 + _ORES[ore]
        row = {"id": number, "x1": x1, "x2": 100 * x2 + 500, "x3": x3, "ore": ore}
        if draw.random() >= 0.1:
            row["x4"] = x4
        yield row | {"y": y + draw.gauss(0, 0.5)}


REGRESSION = SampleRegression()
