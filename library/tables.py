"""Tasks for tables, and the kinds of their columns.

from stagecraft.tables import Numeric, Regression

HOUSES = Regression(features={"area": Numeric()}, label="price")
"""

from stagecraft.trainer_module.data.tasks.tables.binary_classification import BinaryClassification
from stagecraft.trainer_module.data.tasks.tables.columns import (
    Bucketized,
    Column,
    Hashed,
    Identity,
    Numeric,
    Vocabulary,
)
from stagecraft.trainer_module.data.tasks.tables.regression import Regression

__all__ = [
    "BinaryClassification",
    "Bucketized",
    "Column",
    "Hashed",
    "Identity",
    "Numeric",
    "Regression",
    "Vocabulary",
]
