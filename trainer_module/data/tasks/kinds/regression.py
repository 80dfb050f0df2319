"""A number from a table; without arguments, the sample that this file makes."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Iterable, Mapping
from typing import Any

from stagecraft.schemas import features as names
from stagecraft.trainer_module.data.tasks.tables.column import Column
from stagecraft.trainer_module.data.tasks.tables.columns import Numeric, Vocabulary
from stagecraft.trainer_module.data.tasks.tables.regression import Regression

EXAMPLES = 6_000
SCHEMA_FILE = str(pathlib.Path(names.__file__).resolve().parent / "regression.pbtxt")
_ORES = {"iron": 3.0, "copper": -2.0, "tin": 0.5}


class SampleRegression(Regression):
    """Without arguments, predicts ``y`` of the sample."""

    def __init__(
        self,
        features: Mapping[str, Column | str | Mapping[str, Any]] | None = None,
        label: str = "y",
        weight: str | None = None,
        label_scale: str = "z_score",
    ):
        """See :class:`~stagecraft.trainer_module.data.tasks.tables.regression.Regression`."""
        self._is_sample = features is None
        if features is None:
            self.schema_file = SCHEMA_FILE
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
