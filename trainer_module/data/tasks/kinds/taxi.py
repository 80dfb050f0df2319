"""The table of TFX's tutorials and template: which taxi trip brings a tip of more than a fifth.

The data are trips in Chicago, a file in TFX's wheel
(https://www.tensorflow.org/tfx/tutorials/tfx/components_keras).
"""

from __future__ import annotations

from stagecraft.schemas import features as names
from stagecraft.trainer_module.data.tasks.kinds.binary_classification import BinaryClassification
from stagecraft.trainer_module.data.tasks.tables.columns import (
    Bucketized,
    Identity,
    Numeric,
    Vocabulary,
)

_PLACES = ("pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude")
_IDS = {
    "trip_start_hour": 24,
    "trip_start_day": 8,
    "trip_start_month": 13,
    "pickup_community_area": 78,
    "dropoff_community_area": 78,
}
_TEXTS = ("payment_type", "company")


class Taxi(BinaryClassification):
    """Columns and label of the table, as TFX's tutorial uses them."""

    name = "taxi"
    description = "tips of taxi trips, the table of TFX's template"
    schema_file = names.schema_file("taxi")

    def __init__(self) -> None:
        """Declares the columns."""
        super().__init__(
            features={
                **{name: Numeric() for name in ("trip_miles", "fare")},
                "trip_seconds": Numeric(missing_indicator=True),
                **{name: Bucketized(10) for name in _PLACES},
                **{name: Identity(size) for name, size in _IDS.items()},
                **{name: Vocabulary(1000, oov=10) for name in _TEXTS},
            },
            label="big_tipper",
        )


TAXI = Taxi()
