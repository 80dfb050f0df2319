"""The task of the model: which taxi trip brings a tip of more than a fifth of the fare."""

from stagecraft.tables import BinaryClassification, Bucketized, Identity, Numeric, Vocabulary

TAXI = BinaryClassification(
    features={
        "trip_miles": Numeric(),
        "fare": Numeric(),
        "trip_seconds": Numeric(missing_indicator=True),
        "pickup_latitude": Bucketized(10),
        "pickup_longitude": Bucketized(10),
        "dropoff_latitude": Bucketized(10),
        "dropoff_longitude": Bucketized(10),
        "trip_start_hour": Identity(24),
        "trip_start_day": Identity(8),
        "trip_start_month": Identity(13),
        "pickup_community_area": Identity(78),
        "dropoff_community_area": Identity(78),
        "payment_type": Vocabulary(1000, oov=10),
        "company": Vocabulary(1000, oov=10),
    },
    label="big_tipper",
)
